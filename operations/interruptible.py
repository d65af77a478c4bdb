"""The soft time limit interrupts a handler, and nothing of the bookkeeping around it.

The signal may come late, when the worker's main process was busy: then its exception
would hit the settling of this attempt, an attempt at another operation, or a child that
waits for work.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from billiard.exceptions import SoftTimeLimitExceeded

_running = False
_owed = False


@contextmanager
def interruptible() -> Iterator[None]:
    """While the handler runs.

    :raises SoftTimeLimitExceeded: the time was over before it began
    """
    global _running, _owed  # noqa: PLW0603  (one handler a process, and a signal to reach it)
    if _owed:
        _owed = False
        raise SoftTimeLimitExceeded
    _running = True
    try:
        yield
    finally:
        _running = False


def begin_attempt() -> None:
    """What is owed from here on is owed to this attempt."""
    global _owed  # noqa: PLW0603
    _owed = False


def interrupt() -> None:
    """The soft time limit is over; called by the handler of its signal.

    :raises SoftTimeLimitExceeded: in the handler that runs
    """
    global _owed  # noqa: PLW0603
    if _running:
        raise SoftTimeLimitExceeded
    _owed = True
