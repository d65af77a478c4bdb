"""A dependency's share of a worker's pool.

Each worker keeps one byte for each place in an unnamed file, and a child that calls holds a
lock on one of them. Such a lock belongs to the process: the kernel takes it back from one
that is killed, whoever killed it.

Who finds no place waits a moment, since calls are short while all is well. When those in
all places have been there for longer than that moment, there is no point in it.

The share is rounded up: a pool of less than four processes has a place for each with the
usual share, and is kept from waiting as a whole only by the breaker. Rounded down, half of
a pool of two could never call, while all is well too. Who wants the protection starts more
processes, or workers of their own for other queues.
"""

import fcntl
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Places for each dependency in the file.
_STRIDE = 10_000
#: How long a call waits for a place, in seconds: about as long as a call takes that is not slow.
PATIENCE = 0.2
_POLL = 0.01
_TIME = struct.Struct("d")

#: The file, how many attempts are made at once, and the worker's name.
_pool: tuple[int, int, str] | None = None


def set_pool(size: int) -> None:
    """Called by a worker before it forks its children.

    :param size: how many attempts it makes at once
    """
    global _pool  # noqa: PLW0603  # one for each worker, inherited by its children
    _pool = os.memfd_create("sekali-bulkhead"), size, _this_process()


def worker() -> str:
    """The worker that this process belongs to, as ``host:pid``; outside of one, itself."""
    return _this_process() if _pool is None else _pool[2]


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class Bulkhead:
    """Calls of one dependency that one worker may make at once.

    :param number: which dependency this is, the same in all children of a worker
    :param share: of the pool, above 0 and at most 1
    """

    def __init__(self, number: int, share: float) -> None:
        self._start = number * _STRIDE
        self._share = share
        self._mine = threading.Lock()

    @property
    def places(self) -> int:
        """How many of this worker may call at once; 0: any number."""
        if _pool is None or self._share >= 1:
            return 0
        return math.ceil(round(_pool[1] * self._share, 6))

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Hold one while the block runs. False: there is none."""
        if _pool is None or self._share >= 1:
            yield True
            return
        file, places = _pool[0], self.places
        # A lock of the file is the process's; one that has threads takes one place for all.
        if not self._mine.acquire(blocking=False):
            yield True
            return
        try:
            place = self._wait_for_one(file, places)
            try:
                yield place is not None
            finally:
                if place is not None:
                    fcntl.lockf(file, fcntl.LOCK_UN, 1, place)
        finally:
            self._mine.release()

    def _wait_for_one(self, file: int, places: int) -> int | None:
        deadline = time.monotonic() + PATIENCE
        while True:
            now, slow = time.monotonic(), True
            for place in range(self._start, self._start + places):
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                except OSError:
                    slow = slow and now - _taken_at(file, place) > PATIENCE
                    continue
                os.pwrite(file, _TIME.pack(now), place * _TIME.size)
                return place
            if slow or now >= deadline:
                return None
            time.sleep(_POLL)


def _taken_at(file: int, place: int) -> float:
    """When it was taken; one that was taken in this very moment may not say so yet."""
    written = os.pread(file, _TIME.size, place * _TIME.size)
    return float(_TIME.unpack(written)[0]) if len(written) == _TIME.size else time.monotonic()
