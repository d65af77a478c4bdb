"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], timeout: float = 10.0, message: str = "", *, every: float = 0.02
) -> T:
    """Ask until the answer is true and return it; ``timeout`` and ``every`` in seconds.

    Raises ``AssertionError`` with the message and the last answer when the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            said = message or "the condition did not come true"
            raise AssertionError(f"{said} (waited {timeout:g} s, last answer: {answer!r})")
        time.sleep(every)
