"""Why the children of this worker ended, when the main process ended them itself.

A death without an entry here is a loss, and counts against the operation that the child
was working on.
"""

import enum
import threading
import time


class Why(enum.Enum):
    """What the main process had in mind."""

    #: The hard time limit: counts as a loss, of category ``timeout``.
    TIMED_OUT = "timed out"
    #: Remote control revoked the task and ended it: not counted.
    REVOKED = "revoked"
    #: The worker leaves, or lets go of what it cannot acknowledge: not counted.
    LEAVING = "leaving"


#: Seconds after which a child that was to end must have ended.
VALID = 10.0

_expected: dict[int, tuple[Why, float]] = {}
_lock = threading.Lock()


def expect(pid: int | None, why: Why) -> None:
    """This child is about to be ended. What was said first counts."""
    if pid is not None:
        with _lock:
            _expected.setdefault(pid, (why, time.monotonic()))


def reason_for(pid: int) -> Why | None:
    """Why the child ended, told once; None when it ended by itself."""
    with _lock:
        why, since = _expected.pop(pid, (None, 0.0))
    return why if time.monotonic() - since < VALID else None
