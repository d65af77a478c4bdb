"""Counters of what happens to leases (requirement D5).

They are added up in the process and sent along with its next call to the lease server,
so that counting costs no round trip and a killed worker loses no more than its last few.
Without a Valkey backend they stay in the process.
"""

import os
import threading
from collections import Counter
from typing import Literal

Name = Literal[
    "acquired",  # acquires that succeeded
    "refused",  # acquires that found somebody else, after the wait if there was one
    "unavailable",  # acquires and renewals the store did not answer
    "waited",  # acquires that had to wait
    "waited_ms",  # how long those waited, in all
    "lost_expired",  # leases whose time ran out while in use
    "lost_taken",  # leases found gone or in other hands before their time was out
    "release_failed",  # releases the store did not answer
    "release_mismatched",  # releases that found another owner's token
    "stale_write",  # fenced writes that a newer fence refused
]


class _Pending:
    """What this process has counted and not yet sent."""

    def __init__(self) -> None:
        self.start_afresh()
        # The parent sends its own counts, and another thread of it may have the guard.
        os.register_at_fork(after_in_child=self.start_afresh)

    def start_afresh(self) -> None:
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()

    def update(self, counted: dict[str, int]) -> None:
        with self._guard:
            self._counts.update(counted)

    def take(self) -> Counter[str]:
        with self._guard:
            taken, self._counts = self._counts, Counter()
        return taken

    def read(self) -> dict[str, int]:
        with self._guard:
            return dict(self._counts)


_pending = _Pending()


def add(name: Name, amount: int = 1) -> None:
    _pending.update({name: amount})


def take() -> Counter[str]:
    """All that was counted since the last call; the caller must store it or give it back."""
    return _pending.take()


def give_back(taken: Counter[str]) -> None:
    _pending.update(taken)


def flat(taken: Counter[str]) -> list[str | int]:
    """As a script takes them: name, amount, name, amount, …"""
    return [part for item in taken.items() for part in item]


def pending() -> dict[str, int]:
    """What this process has counted and not yet sent."""
    return _pending.read()
