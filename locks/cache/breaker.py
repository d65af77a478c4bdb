"""Leaving a server alone that does not answer.

One time-out is paid by whoever notices, then nobody in this process asks for a while, and
then one thread asks for all of them. So a request pays at most one, however many calls it
makes, and so does whoever else uses the same server (the API's rate limits do).
"""

import os
import threading
import time

from django.conf import settings


class Breaker:
    """Safe for threads. A server that failed is not asked for ``settings.CACHE_REST`` s."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ask_again_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether nobody is to ask now. Asking this does not count as asking the server."""
        return bool(self._ask_again_at) and time.monotonic() < self._ask_again_at

    def may_ask(self) -> bool:
        """Whether the caller may ask the server; if so it must say how that went."""
        if not self._ask_again_at:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._ask_again_at:
                return False
            if self._ask_again_at:
                self._ask_again_at = now + _rest()
            return True

    def failed(self) -> None:
        """The server did not answer."""
        self._ask_again_at = time.monotonic() + _rest()

    def succeeded(self) -> None:
        """The server answered."""
        if self._ask_again_at:
            self._ask_again_at = 0.0


_breakers: dict[str, Breaker] = {}

# Another thread of the parent may have held one.
os.register_at_fork(after_in_child=_breakers.clear)


def breaker_for(url: str) -> Breaker:
    """This process's breaker for the server at ``url``."""
    try:
        return _breakers[url]
    except KeyError:
        return _breakers.setdefault(url, Breaker())


def _rest() -> float:
    return float(getattr(settings, "CACHE_REST", 2))
