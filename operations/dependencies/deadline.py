"""By when a call outside has to be over, whatever it is doing then."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_over_at: ContextVar[float] = ContextVar("sekali_call_over_at", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is called inside the block has so long together; an earlier end stays."""
    token = _over_at.set(min(_over_at.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _over_at.reset(token)


def left() -> float:
    """Seconds that a call may still take; 0 or less: none. Infinite without a limit."""
    return _over_at.get() - time.monotonic()
