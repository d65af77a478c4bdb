"""A delivered message in the worker's main process: what remote control does to it.

Celery drops the message of a revoked task, which would leave its row waiting for ever.
Here the task runs all the same, told that it was revoked, and the row decides.
"""

import signal as signals
from typing import Any

from celery.worker.request import Request
from celery.worker.state import revoked as revoked_ids

from operations.broker.messages import SENT_AT
from operations.worker import ends
from operations.worker.ends import Why
from operations.worker.headers import REVOKED, UNKNOWN_TASK

#: What a child does not survive; by default it is SIGTERM.
_DEADLY = (
    None,
    *("SIGTERM", "SIGKILL", "SIGQUIT", "TERM", "KILL", "QUIT"),
    *(signals.SIGTERM, signals.SIGKILL, signals.SIGQUIT),
)

#: What a task may be told by the headers of its message.
_KNOWN = frozenset(
    {
        *("task", "id", "root_id", "parent_id", "origin", "lang", "shadow"),
        *("argsrepr", "kwargsrepr", "retries", "eta", "expires", "timelimit"),
        *("ignore_result", "request_id", SENT_AT, REVOKED, UNKNOWN_TASK),
    }
)


class PlainRequest(Request):  # type: ignore[misc]
    """A request without callbacks, chains and groups, whatever the message says.

    Nothing here uses them, and one that cannot be carried out makes Celery forget to
    answer for the message: its place in the worker would be lost for ever.
    """

    def __init__(
        self,
        message: Any,
        *,
        headers: dict[str, Any],
        body: Any,
        decoded: bool = False,
        **kwargs: Any,
    ) -> None:
        arguments, named, _ = body if decoded else message.payload
        super().__init__(
            message,
            headers={name: value for name, value in headers.items() if name in _KNOWN},
            body=(arguments, named, {}),
            decoded=True,
            **kwargs,
        )


class OperationRequest(PlainRequest):
    """The request of a kind's task."""

    def __init__(self, message: Any, *, headers: dict[str, Any], **kwargs: Any) -> None:
        """What the message says of time does not count: the row and the kind decide. Who
        waits for an ETA waits in the worker, and enough of them would fill it for ever."""
        timeless = {**headers, "eta": None, "expires": None, "timelimit": None}
        super().__init__(message, headers=timeless, **kwargs)

    def revoked(self) -> bool:
        """Never dropped, neither revoked nor expired: the message is no more than a hint."""
        if self.id in revoked_ids:
            self.request_dict[REVOKED] = True
        return False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Remote control ends the child that works on it."""
        if self.time_start and signal in _DEADLY:
            ends.expect(self.worker_pid, Why.REVOKED)
        super().terminate(pool, signal)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """The worker leaves and cannot wait."""
        if self.time_start:
            ends.expect(self.worker_pid, Why.LEAVING)
        super().cancel(pool, signal, emit_retry=emit_retry)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if not soft:
            ends.expect(self.worker_pid, Why.TIMED_OUT)
        super().on_timeout(soft, timeout)
