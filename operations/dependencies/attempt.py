"""What a dependency has to know of the attempt that calls it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

#: The longest wait of an operation that was refused a call, in seconds, unless the
#: dependency itself asked for more.
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


def spread(wait: float, waited: float) -> float:
    """Seconds to put an operation off: longer the longer it has waited, and never for all
    of them the same."""
    return max(wait, min(LONGEST_WAIT, waited / 2), 0.5) * random.uniform(1, 1.5)  # noqa: S311
