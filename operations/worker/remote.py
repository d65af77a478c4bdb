"""Remote control of a worker, which must not be able to stop it from working."""

import logging
from typing import Any

from celery.worker import pidbox
from celery.worker.consumer import control as stock
from celery.worker.consumer.tasks import Tasks
from celery.worker.control import inspect_command
from kombu.entity import Queue

from operations.broker.names import DEAD_LETTER

log = logging.getLogger(__name__)

#: Seconds until the mailbox is tried again.
AGAIN = 15.0


class _Mailbox(pidbox.Pidbox):  # type: ignore[misc]
    def start(self, c: Any) -> None:
        """Listen for commands; if that cannot be, work without, and try again later.

        On RabbitMQ a mailbox belongs to one connection: a second worker of the same name,
        or a successor whose predecessor's connection still lingers, cannot have it.
        """
        try:
            super().start(c)
        except c.connection.channel_errors as error:
            log.warning("No remote control of %s for now: %s", c.hostname, error)
            self.consumer = None
            c.timer.call_after(AGAIN, self._try_again, (c, c.connection))

    def _try_again(self, c: Any, connection: Any) -> None:
        if c.connection is connection and self.consumer is None:
            self.start(c)
            if self.consumer is not None:
                self.consumer.consume()


class Control(stock.Control):  # type: ignore[misc]
    """The step that replaces Celery's."""

    requires = (Tasks,)

    def __init__(self, c: Any, **kwargs: Any) -> None:
        super().__init__(c, **kwargs)
        if not self.is_green:
            self.box = _Mailbox(c)
            self.start, self.stop, self.shutdown = (
                self.box.start,
                self.box.stop,
                self.box.shutdown,
            )


@inspect_command(name="active_queues")  # type: ignore[untyped-decorator]
def active_queues(state: Any) -> list[dict[str, Any]]:
    """The queues this worker consumes from, and the one of dead letters.

    Flower shows the length of the queues that some worker names here.
    """
    consumer = state.consumer.task_consumer
    dead = Queue(DEAD_LETTER)  # type: ignore[no-untyped-call]
    queues = [*consumer.queues, dead] if consumer else []
    return [dict(queue.as_dict(recurse=True)) for queue in queues]
