"""A delivered message in the worker's main process: what remote control does to it.

Celery drops the message of a revoked task, which would leave its row waiting for ever.
Here the task runs all the same, told that it was revoked, and the row decides.
"""

import signal as signals
from typing import Any

from celery.worker.request import Request
from celery.worker.state import revoked as revoked_ids

from operations.worker import ends
from operations.worker.ends import Why
from operations.worker.headers import REVOKED

#: What a child does not survive; by default it is SIGTERM.
_DEADLY = (
    None,
    *("SIGTERM", "SIGKILL", "SIGQUIT", "TERM", "KILL", "QUIT"),
    *(signals.SIGTERM, signals.SIGKILL, signals.SIGQUIT),
)


class OperationRequest(Request):  # type: ignore[misc]
    """The request of a kind's task."""

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
