"""Counters of what the cache does, by entry (requirement E8).

They are added up in the process and sent to the cache server in the same round trip as
some later call, about once a second. So counting costs no round trip, and a killed process
loses no more than its last second.
"""

import os
import threading
import time
from collections.abc import Mapping
from typing import Literal, cast

Name = Literal[
    "hit",  # reads answered by a fresh value
    "stale",  # reads answered by a value past its TTL while somebody revalidated it
    "miss",  # reads that found nothing to answer with
    "bypassed",  # reads inside a transaction or a load, which asked the source
    "unavailable",  # reads that did without the cache because it was away
    "read",  # calls that looked values up
    "read_us",  # what those took in all, microseconds
    "waited",  # reads that waited for another's load
    "waited_us",  # what those waited in all, microseconds
    "load",  # loads from the source, one for each call of a loader
    "load_us",  # what those took in all, microseconds
    "load_error",  # loads that raised
    "overloaded",  # loads that found no room among the others
    "filled",  # values stored
    "rejected",  # values not stored: an invalidation, or the time, had taken the token away
    "invalidated",  # keys deleted after a commit
    "invalidation_failed",  # keys that could not be; their records repair it
    "reapplied",  # keys deleted once more from the record
    "audited",  # values compared with the source
    "mismatched",  # of those, the ones that were wrong; they were deleted
]

#: Seconds between two sendings of a process.
INTERVAL = 1.0


class _Pending:
    """What this process has counted and not yet sent."""

    def __init__(self) -> None:
        self.start_afresh()
        # The parent sends its own counts, and another thread of it may have the guard.
        os.register_at_fork(after_in_child=self.start_afresh)

    def start_afresh(self) -> None:
        self._guard = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self._next = time.monotonic() + INTERVAL

    def add(self, entry: str, counted: dict[Name, int]) -> None:
        with self._guard:
            for name, amount in counted.items():
                key = entry, name
                self._counts[key] = self._counts.get(key, 0) + amount

    def due(self) -> dict[str, int] | None:
        if time.monotonic() < self._next:
            return None
        with self._guard:
            if not self._counts:
                return None
            taken, self._counts = self._counts, {}
            self._next = time.monotonic() + INTERVAL
        return _by_field(taken)

    def give_back(self, taken: Mapping[str, int]) -> None:
        for field, amount in taken.items():
            entry, _, name = field.partition(":")
            self.add(entry, {cast("Name", name): amount})

    def read(self) -> dict[str, int]:
        with self._guard:
            return _by_field(self._counts)


def _by_field(counted: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {f"{entry}:{name}": amount for (entry, name), amount in counted.items() if amount}


_pending = _Pending()


def add(entry: str, counted: dict[Name, int]) -> None:
    _pending.add(entry, counted)


def due() -> dict[str, int] | None:
    """All that was counted, when it is time to send it; the caller must send it or give it
    back."""
    return _pending.due()


def give_back(taken: Mapping[str, int]) -> None:
    _pending.give_back(taken)


def pending() -> dict[str, int]:
    """What this process has counted and not yet sent, by ``entry:name``."""
    return _pending.read()
