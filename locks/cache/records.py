"""Invalidations written down in the transaction that makes them necessary.

The delete that follows the commit can be lost: the cache is away, or the process is killed
in between. So each is recorded in the same transaction, and applied once more from the
record a few seconds later (by the dispatcher), however the first delete went. A record
goes when its delete was answered; until then it stays and is tried again.

Records of one key that fall due within the same second are applied together: a key that is
written all the time is deleted for its records at most once a second, and can be filled in
between.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connections

from locks.cache import counts
from locks.cache.errors import CacheAway
from locks.cache.keys import name_of
from locks.cache.store import Store
from locks.fences import database

#: Records applied in one go, their keys deleted in one call; and how many such in a row.
BATCH, BATCHES = 1000, 10
#: Seconds until records are tried again that could not be applied.
RETRY = 1.0
#: Seconds beyond the delay after which a record that still waits is a sign of trouble.
LATE = 10.0


def insert(keys: str, delay: str, source: str = "") -> str:
    """The statement that records keys, for use as a part of another statement.

    :param keys: SQL for a ``text[]`` of keys
    :param delay: SQL for a number of seconds, see :func:`delay`
    :param source: SQL for a relation whose being empty means that nothing is recorded
    """
    # Up to the next full second, where all records of a key meet.
    return (
        "INSERT INTO locks_invalidation (key, recorded_at, due_at)"  # noqa: S608  (constants)
        " SELECT key, statement_timestamp(), date_trunc('second',"
        f" statement_timestamp() + {delay} * interval '1 second') + interval '1 second'"
        f" FROM {source + ' CROSS JOIN ' if source else ''}unnest({keys}::text[]) AS key"
    )


def delay() -> float:
    """Seconds until a record is applied: ``settings.CACHE_REPAIR_DELAY``."""
    return float(getattr(settings, "CACHE_REPAIR_DELAY", 3))


_RECORD = insert("%s", "%s")


def record(keys: Sequence[str]) -> None:
    """Write down that these keys are to be invalidated; one statement."""
    with connections[database()].cursor() as cursor:
        cursor.execute(_RECORD, [delay(), list(keys)])


_TAKE_DUE = """
WITH due AS (
    SELECT id FROM locks_invalidation WHERE due_at <= statement_timestamp()
    ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE locks_invalidation AS record
SET due_at = statement_timestamp() + %s * interval '1 second'
FROM due WHERE record.id = due.id
RETURNING record.id, record.key
"""

_FORGET = "DELETE FROM locks_invalidation WHERE id = ANY(%s)"


def apply_due() -> int:
    """Apply what is due once more; returns how many records that settled.

    Nothing is held while the cache is asked, and any number of processes may do this.
    While the cache is away this costs nothing, and the records wait.
    """
    settled = 0
    for _ in range(BATCHES):
        batch = 0 if Store().is_resting else _apply_batch()
        settled += batch
        if batch < BATCH:
            break
    return settled


def _apply_batch() -> int:
    with connections[database()].cursor() as cursor:
        cursor.execute(_TAKE_DUE, [BATCH, RETRY])
        due = dict(cursor.fetchall())
        if not due:
            return 0
        keys = list(dict.fromkeys(due.values()))
        try:
            Store().drop(keys)
        except CacheAway:
            return 0
        cursor.execute(_FORGET, [list(due)])
    for key in keys:
        counts.add(name_of(key), {"reapplied": 1})
    return len(due)


@dataclass(frozen=True)
class Pending:
    """Records that wait to be applied; ``oldest`` is the age of the oldest in seconds."""

    number: int
    oldest: float

    @property
    def is_late(self) -> bool:
        """Whether the cache, or every dispatcher, must be away."""
        return self.oldest > delay() + LATE


_PENDING = """
SELECT count(*), COALESCE(extract(epoch FROM statement_timestamp() - min(recorded_at)), 0)
FROM locks_invalidation
"""


def pending() -> Pending:
    """What waits. One statement."""
    with connections[database()].cursor() as cursor:
        cursor.execute(_PENDING)
        number, oldest = cursor.fetchone()
    return Pending(number, float(oldest))
