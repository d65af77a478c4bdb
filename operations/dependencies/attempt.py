"""What a dependency has to know of the attempt that calls it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

#: An operation that was refused a call comes back after about so long, in seconds: whether
#: it is then sent, the dispatcher decides, which sees the breaker too.
SOON = 2.0
#: The same where nobody holds it back; it grows up to this.
LONGEST_WAIT = 30.0


@dataclass
class CallingAttempt:
    """:param waited: seconds since the operation was deferred first"""

    retry: bool
    waited: float
    counted: set[str] = field(default_factory=set)


_current: ContextVar[CallingAttempt | None] = ContextVar("sekali_calling_attempt", default=None)


@contextmanager
def calling(*, retry: bool, waited: float) -> Iterator[None]:
    """Calls inside the block belong to one attempt.

    :param retry: it is not the first attempt of its operation
    """
    token = _current.set(CallingAttempt(retry=retry, waited=waited))
    try:
        yield
    finally:
        _current.reset(token)


def current() -> CallingAttempt:
    """The attempt in which we are; outside of one, a first try of its own."""
    return _current.get() or CallingAttempt(retry=False, waited=0)


def put_off(wait: float, waited: float, *, held_back: bool) -> float:
    """Seconds to put an operation off, never the same for two.

    :param wait: seconds until a call may be allowed
    :param waited: seconds since it was deferred first
    :param held_back: the dispatcher sends it only when a call may be allowed. So it need not
        sleep until then, and does not sleep on when that comes sooner. Otherwise it waits
        longer the longer it has waited, or thousands would keep the workers busy
    """
    wait = min(wait, SOON) if held_back else max(wait, min(LONGEST_WAIT, waited / 2))
    return max(wait, 0.5) * random.uniform(1, 1.5)  # noqa: S311
