"""The Celery tasks: one for each kind of operation, and the housekeeping.

Celery carries messages and runs processes. It decides nothing about time: when an
attempt is to be retried, that stands in the row, and the task ends in state RETRY
without publishing a message with an ETA.
"""

import logging
import uuid
from typing import Any

from celery import Task, current_app, shared_task
from celery.exceptions import Ignore, Retry
from django.db import DatabaseError
from kombu.entity import Queue

from operations import prune, registry
from operations.executor import Outcome, execute
from operations.registry import Kind
from operations.worker.process import own_process_name

log = logging.getLogger(__name__)

_AGAIN = frozenset({Outcome.RETRY, Outcome.DEFERRED})
_NOTHING_DONE = frozenset({Outcome.DUPLICATE, Outcome.BUSY, Outcome.LOST})


def _make_task(kind: Kind) -> None:
    @shared_task(  # type: ignore[untyped-decorator]
        bind=True,
        name=kind.name,
        queue=kind.queue,
        soft_time_limit=kind.soft_time_limit,
        time_limit=kind.time_limit,
        acks_late=True,
        reject_on_worker_lost=False,
    )
    def run(task: Task[Any, Any], operation_id: str) -> str:
        outcome = execute(
            uuid.UUID(operation_id),
            task.name,
            process=own_process_name(task.request.hostname or "unknown"),
        )
        if outcome in _AGAIN:
            raise Retry(message=outcome.value)
        if outcome in _NOTHING_DONE:
            log.info("nothing done: %s", outcome.value)
            raise Ignore
        return outcome.value


for _kind in registry.kinds():
    _make_task(_kind)
for _queue in registry.queues():
    current_app.amqp.queues.select_add(Queue(_queue, routing_key=_queue))  # type: ignore[no-untyped-call]


@shared_task(  # type: ignore[untyped-decorator]
    name="operations.prune",
    autoretry_for=(DatabaseError,),
    retry_backoff=True,
    retry_jitter=True,
    max_retries=3,
)
def prune_task() -> dict[str, int]:
    """Forget what has been kept long enough."""
    return prune.prune()
