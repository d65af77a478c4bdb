"""The Celery tasks: one for each kind of operation, and the housekeeping.

Celery carries messages and runs processes. It decides nothing about time: when an
attempt is to be retried, that stands in the row, and the task ends in state RETRY
without publishing a message with an ETA.

A message that belongs to no operation is rejected, which moves it to the dead letters.
"""

import logging
import uuid
from typing import Any

from celery import Task, current_app, shared_task
from celery.exceptions import Ignore, Reject, Retry
from django.db import DatabaseError

from locks import LeaseUnavailable
from operations import prune, registry
from operations.broker.messages import SENT_AT, sent_at_of
from operations.broker.names import HOUSEKEEPING
from operations.broker.queues import queue
from operations.executor import Outcome, execute, revoke, set_aside
from operations.registry import Kind
from operations.worker.headers import REVOKED, SET_ASIDE, UNKNOWN_TASK
from operations.worker.process import alone, own_process_name

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
        Request="operations.worker.request:OperationRequest",
    )
    def run(task: Task[Any, Any], *args: Any, **kwargs: Any) -> str:
        id = _operation_id(args, kwargs)
        if task.request.get(REVOKED) and revoke(id):
            return "revoked"
        with alone():
            outcome = execute(
                id,
                task.name,
                process=own_process_name(task.request.hostname or "unknown"),
                sent_at=sent_at_of(task.request.get(SENT_AT)),
            )
        return _ended(outcome)


@shared_task(  # type: ignore[untyped-decorator]
    bind=True,
    name=SET_ASIDE,
    acks_late=True,
    reject_on_worker_lost=False,
    Request="operations.worker.request:OperationRequest",
)
def set_aside_task(task: Task[Any, Any], *args: Any, **kwargs: Any) -> str:
    """Runs in place of a task that is not known here: a newer version may know it."""
    return _ended(set_aside(_operation_id(args, kwargs), str(task.request.get(UNKNOWN_TASK))))


def _operation_id(args: tuple[Any, ...], kwargs: dict[str, Any]) -> uuid.UUID:
    try:
        (text,) = args
        if kwargs:
            raise ValueError(kwargs)
        return uuid.UUID(text)
    except (ValueError, TypeError, AttributeError):
        raise Reject("its arguments are not the id of an operation", requeue=False) from None


def _ended(outcome: Outcome) -> str:
    """What Celery is to be told."""
    if outcome is Outcome.UNKNOWN:
        raise Reject("there is no such operation of this kind", requeue=False)
    if outcome in _AGAIN:
        raise Retry(message=outcome.value)
    if outcome in _NOTHING_DONE:
        log.info("nothing done: %s", outcome.value)
        raise Ignore
    return str(outcome.value)


for _kind in registry.kinds():
    _make_task(_kind)
for _name in (*registry.queues(), HOUSEKEEPING):
    current_app.amqp.queues.select_add(queue(_name))


@shared_task(  # type: ignore[untyped-decorator]
    name="operations.prune",
    autoretry_for=(DatabaseError, LeaseUnavailable),
    retry_backoff=True,
    retry_jitter=True,
    max_retries=3,
)
def prune_task() -> dict[str, int]:
    """Forget what has been kept long enough."""
    return prune.prune()
