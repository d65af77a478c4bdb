"""Taking values out of the cache once what they were loaded from has changed."""

import logging
from collections.abc import Sequence
from functools import partial

from django.db import transaction

from locks.cache import counts, records
from locks.cache.errors import CacheAway
from locks.cache.keys import name_of
from locks.cache.store import Store
from locks.fences import database

log = logging.getLogger(__name__)


def invalidate(*keys: str) -> None:
    """Have these keys dropped when the present transaction commits, and only then.

    Nothing happens on rollback, nor when the savepoint around this call is rolled back.
    Costs one statement, which records the keys, however many they are. Outside a transaction
    the write before it has committed, and the keys are dropped at once; but a process that
    dies between the two leaves them, so a write and its invalidation belong in one
    transaction.
    """
    if not keys:
        return
    records.record(keys)
    transaction.on_commit(partial(drop, keys), using=database(), robust=True)


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
