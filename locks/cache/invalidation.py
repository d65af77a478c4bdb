"""Taking values out of the cache once what they were loaded from has changed."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from django.db import connections, transaction

from locks.cache import counts, records
from locks.cache.errors import CacheAway
from locks.cache.keys import name_of
from locks.cache.store import Store
from locks.fences import database

log = logging.getLogger(__name__)


def invalidate(*keys: str) -> None:
    """Have these keys dropped when the present transaction commits, and only then.

    Nothing happens on rollback, nor when the savepoint around this call is rolled back.
    Costs one statement, which records the keys, however many they are; none inside a fenced
    transaction of an operation, whose last statement does it. Outside a transaction
    the write before it has committed, and the keys are dropped at once; but a process that
    dies between the two leaves them, so a write and its invalidation belong in one
    transaction.
    """
    if not keys:
        return
    collected = getattr(_collecting, "now", None)
    if collected is not None:
        collected.add(keys)
        return
    records.record(keys)
    transaction.on_commit(partial(drop, keys), using=database(), robust=True)


class Collected:
    """What is invalidated in a transaction whose last statement records it."""

    def __init__(self) -> None:
        self._asked: list[tuple[tuple[str, ...], Callable[[], None]]] = []

    def add(self, keys: tuple[str, ...]) -> None:
        def mark() -> None:
            """Goes when the savepoint that it was set in is rolled back."""

        transaction.on_commit(mark, using=database())
        self._asked.append((keys, mark))

    def keys(self) -> list[str]:
        """All but what was rolled back, each once."""
        marks = {hook[1] for hook in connections[database()].run_on_commit}
        return list(
            dict.fromkeys(key for keys, mark in self._asked if mark in marks for key in keys)
        )


_collecting = threading.local()


@contextmanager
def collecting() -> Iterator[Collected]:
    """Inside a transaction: meanwhile, in this thread, :func:`invalidate` collects. The caller
    must record what was collected, in that transaction, and :func:`drop` it afterwards."""
    _collecting.now = Collected()
    try:
        yield _collecting.now
    finally:
        _collecting.now = None


def drop(keys: Sequence[str]) -> None:
    """Delete keys that are recorded, after the commit. Failing does no more than log: the
    record repairs it."""
    try:
        Store().drop(keys)
    except CacheAway:
        log.warning("%d keys are not invalidated yet; their records will.", len(keys))
        outcome: counts.Name = "invalidation_failed"
    else:
        outcome = "invalidated"
    for key in keys:
        counts.add(name_of(key), {outcome: 1})
