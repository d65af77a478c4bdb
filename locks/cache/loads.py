"""How many loads from the source may go on at once.

A cache that is away, or was just emptied, sends every reader to the database. So each
process has a few places for loads, ``settings.CACHE_LOADS``; and those who waited in vain
for another's load, and now load for themselves, share ``settings.CACHE_LOADS_TOGETHER``
among all processes. (While the cache is away that second bound is lost, the first is not.)
"""

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from django.conf import settings

from locks.cache.errors import CacheAway, Overloaded
from locks.cache.store import Store


class _Places:
    """Of this process. A thread that has one may load within its load without a second."""

    def __init__(self) -> None:
        self.start_afresh()
        # Those who held a place in the parent will not give it back here.
        os.register_at_fork(after_in_child=self.start_afresh)

    def start_afresh(self) -> None:
        self._free = threading.Condition()
        self._taken = 0
        self._own = threading.local()

    @contextmanager
    def one(self) -> Iterator[None]:
        if self.has_own:
            yield
            return
        with self._free:
            if not self._free.wait_for(self._is_free, timeout=_patience()):
                raise Overloaded("Every place for loads in this process is taken.")
            self._taken += 1
        self._own.has_one = True
        try:
            yield
        finally:
            self._own.has_one = False
            with self._free:
                self._taken -= 1
                self._free.notify()

    @property
    def has_own(self) -> bool:
        """Whether this thread has one."""
        return getattr(self._own, "has_one", False)

    def _is_free(self) -> bool:
        return self._taken < int(getattr(settings, "CACHE_LOADS", 4))


_places = _Places()


def is_loading() -> bool:
    """Whether this thread is in the middle of a load."""
    return _places.has_own


def place() -> AbstractContextManager[None]:
    """Wait for one of this process's places and hold it.

    :raises Overloaded: none became free within ``settings.CACHE_LOAD_WAIT`` seconds
    """
    return _places.one()


@contextmanager
def shared_place(store: Store, lease: float) -> Iterator[None]:
    """Wait for one of the places of all processes, and one of this process's.

    :param lease: seconds after which the shared place is free again, come what may
    :raises Overloaded: none became free within ``settings.CACHE_LOAD_WAIT`` seconds
    """
    name = secrets.token_hex(8)
    try:
        entered = _soon(
            lambda: store.enter(name, lease, int(getattr(settings, "CACHE_LOADS_TOGETHER", 16)))
        )
    except CacheAway:
        with _places.one():
            yield
        return
    if not entered:
        raise Overloaded("Every place for loads that all processes share is taken.")
    try:
        with _places.one():
            yield
    finally:
        with suppress(CacheAway):  # then it ends by itself
            store.leave(name)


def _soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _patience()
    pause = 0.005
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        pause = min(0.05, pause * 1.5)
    return True


def _patience() -> float:
    return float(getattr(settings, "CACHE_LOAD_WAIT", 2))
