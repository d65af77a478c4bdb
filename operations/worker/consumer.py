"""The worker's consumer: no message and no outage ends or stalls it.

What no worker can read is rejected, which moves it to the queue ``dead_letter`` on every
broker; nothing is acknowledged away. A task that is not registered here may be known to a
newer version: its operation is set aside, by the task of that name.
"""

import logging
import warnings
from typing import Any

from celery.exceptions import CPendingDeprecationWarning, WorkerShutdown, WorkerTerminate
from celery.worker import loops
from celery.worker.consumer import consumer as stock
from celery.worker.state import maybe_shutdown
from django.conf import settings
from kombu.message import Message

from operations.crashpoints import reach
from operations.worker.headers import SET_ASIDE, UNKNOWN_TASK

log = logging.getLogger(__name__)


class BrokenLoop(ConnectionError):
    """The event loop ended by an error nobody expected. The worker connects anew."""


class Consumer(stock.Consumer):  # type: ignore[misc]
    """Celery's consumer, hardened."""

    class Blueprint(stock.Consumer.Blueprint):  # type: ignore[misc]
        # Without what nothing here uses: clock and revocations of neighbours, which cost a
        # second at every start, and queues for native delay: waits stand in the rows.
        default_steps = (
            "celery.worker.consumer.connection:Connection",
            "operations.worker.topology:Topology",
            "celery.worker.consumer.events:Events",
            "celery.worker.consumer.heart:Heart",
            "operations.worker.remote:Control",
            "celery.worker.consumer.tasks:Tasks",
            "celery.worker.consumer.consumer:Evloop",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "without_mingle": True, "without_gossip": True})

    @staticmethod
    def loop(consumer: "Consumer", *args: Any) -> None:
        """The event loop. Whatever goes wrong in it is a lost connection, not the end."""
        inner = loops.asynloop if consumer.hub else loops.synloop
        try:
            inner(consumer, *args)
        except (*consumer.connection_errors, *consumer.channel_errors, MemoryError):
            raise
        except Exception as error:
            log.exception("The event loop broke; connecting anew.")
            raise BrokenLoop(str(error)) from error

    def ensure_connected(self, conn: Any) -> Any:
        """Try for as long as it takes, at most some seconds apart."""

        def on_error(error: BaseException, interval: float) -> None:
            log.error("No connection to %s: %s. Again in %g s.", conn.as_uri(), error, interval)

        connected = conn.ensure_connection(
            on_error,
            None,
            interval_start=0.5,
            interval_step=0.5,
            interval_max=5,
            callback=maybe_shutdown,
        )
        self.first_connection_attempt = False
        return connected

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        with warnings.catch_warnings():
            # What it warns of is decided; see the settings.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        handle = super().create_task_handler(*args, **kwargs)
        broken = tuple(e for e in self.connection_errors if e is not KeyError)

        def on_message(message: Message) -> None:
            reach("message.taken")
            try:
                _check(message)
                handle(message)
            except broken as error:
                if isinstance(error, _Unreadable):
                    self.bury(message, error)
                else:
                    raise
            except (WorkerShutdown, WorkerTerminate, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001  (whatever the message holds)
                self.bury(message, error)

        return on_message

    def bury(self, message: Message, why: object) -> None:
        """Have the broker move a message to the dead letters."""
        if message.acknowledged:
            log.error("After its message was answered for: %r", why)
            return
        log.error("A message that cannot be handled goes to the dead letters: %r", why)
        if explain := getattr(message.channel, "explain", None):
            explain(message.delivery_tag, repr(why))
        message.reject_log_error(log, self.connection_errors)  # type: ignore[no-untyped-call]

    # --- what Celery would drop or acknowledge away -----------------------------------

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        self.bury(message, exc)

    def on_unknown_message(self, body: Any, message: Message) -> None:  # noqa: ARG002
        self.bury(message, "it does not name a task")

    def on_invalid_task(self, body: Any, message: Message, exc: Exception) -> None:  # noqa: ARG002
        self.bury(message, exc)

    def on_unknown_task(self, body: Any, message: Message, exc: Exception) -> None:
        """Let a child look for its operation, and acknowledge only then."""
        name = message.headers.get("task")
        if body is not None or not isinstance(name, str) or SET_ASIDE not in self.strategies:
            self.bury(message, exc)
            return
        log.warning("No task of the name %r is known here.", name)
        message.headers[UNKNOWN_TASK] = name
        message.headers["task"] = SET_ASIDE
        super().create_task_handler()(message)


class _Unreadable(ValueError):
    """Found before anything was done with the message."""


def _check(message: Message) -> None:
    """
    :raises _Unreadable: it is too large, or its body cannot be decoded
    """
    size = len(message.body or b"")
    if size > settings.SEKALI_MESSAGE_LIMIT:
        raise _Unreadable(f"its body of {size} bytes is too large")
    try:
        payload = message.payload
    except Exception as error:
        raise _Unreadable(f"its body cannot be read: {error!r}") from error
    if not isinstance(message.headers, dict):
        raise _Unreadable("its headers are no object")
    if "task" in message.headers:
        _check_protocol(message.headers, payload)


def _check_protocol(headers: dict[str, Any], payload: Any) -> None:
    """Celery's second message protocol, as far as the main process relies on it."""
    if not isinstance(headers["task"], str):
        raise _Unreadable("the name of its task is no text")
    if not isinstance(headers.get("id"), str):
        raise _Unreadable("it has no id")
    if not (
        isinstance(payload, list | tuple)
        and len(payload) == 3
        and isinstance(payload[0], list | tuple)
        and isinstance(payload[1], dict)
        and isinstance(payload[2], dict | None)
    ):
        raise _Unreadable("its body is not [args, kwargs, embed]")
    limits = headers.get("timelimit")
    if limits is not None and not (
        isinstance(limits, list | tuple)
        and len(limits) == 2
        and all(limit is None or isinstance(limit, int | float) for limit in limits)
    ):
        raise _Unreadable("its time limits are no numbers")
