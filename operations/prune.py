"""Forgetting what has been kept for its published time.

In small batches, children first, each a statement of its own, so that nobody waits for
it. A key and a retry of its request may race: either the retry finds the record, and is
a replay, or the record is gone, and accept starts again. There is no state in between,
since a record goes in one statement and its operation only later.
"""

import time
import uuid
from collections.abc import Callable

from django.conf import settings
from django.db import connection

from locks import postgres as leases

BATCH = 1_000
#: Batches of one kind of row a call; the next call goes on.
ROUNDS = 100

_RECORDS = """
DELETE FROM operations_idempotencyrecord WHERE id IN (
    SELECT r.id FROM operations_idempotencyrecord AS r
    JOIN operations_operation AS o ON o.id = r.operation_id
    WHERE r.expires_at < statement_timestamp()
      AND o.state IN ('done', 'failed', 'cancelled')
    ORDER BY r.expires_at LIMIT %(batch)s FOR UPDATE OF r SKIP LOCKED
)
"""

# Without its record, ended long ago: nothing points to the operation any more but its
# own history and settled letters, which go first. What ended that long ago was accepted
# before, and ids grow with time: so the primary key finds the candidates.
_FORGETTABLE = """
    SELECT o.id FROM operations_operation AS o
    WHERE o.id < %(accepted_before)s AND o.state IN ('done', 'failed', 'cancelled')
      AND o.finished_at < statement_timestamp() - %(retention)s * interval '1 second'
      AND NOT EXISTS (SELECT 1 FROM operations_idempotencyrecord WHERE operation_id = o.id)
    ORDER BY o.id LIMIT %(batch)s
"""
_LETTERS = f"DELETE FROM operations_deadletter WHERE operation_id IN ({_FORGETTABLE})"
_ATTEMPTS = f"DELETE FROM operations_attempt WHERE operation_id IN ({_FORGETTABLE})"
_OPERATIONS = f"""
DELETE FROM operations_operation AS o WHERE o.id IN ({_FORGETTABLE})
  AND NOT EXISTS (SELECT 1 FROM operations_attempt WHERE operation_id = o.id)
  AND NOT EXISTS (SELECT 1 FROM operations_deadletter WHERE operation_id = o.id)
"""


def prune() -> dict[str, int]:
    """Delete expired keys, then operations whose time is over, and rows of leases long ended.

    Returns counts by table. Raises :class:`locks.LeaseUnavailable`.
    """
    keys = _repeat(lambda: _delete(_RECORDS))
    operations = 0
    for _ in range(ROUNDS):
        for children in (_LETTERS, _ATTEMPTS):
            _delete(children)
        deleted = _delete(_OPERATIONS)
        operations += deleted
        if deleted < BATCH:
            break
    return {
        "keys": keys,
        "operations": operations,
        "leases": _repeat(lambda: leases.prune(BATCH)),
    }


def _repeat(delete_batch: Callable[[], int]) -> int:
    total = 0
    for _ in range(ROUNDS):
        deleted = delete_batch()
        total += deleted
        if deleted < BATCH:
            break
    return total


def _delete(sql: str) -> int:
    retention = settings.SEKALI_OPERATION_RETENTION
    with connection.cursor() as cursor:
        cursor.execute(
            sql,
            {
                "batch": BATCH,
                "retention": retention,
                "accepted_before": _first_id_at(time.time() - retention),
            },
        )
        return int(cursor.rowcount)


def _first_id_at(moment: float) -> uuid.UUID:
    """The smallest UUIDv7 of a moment (seconds since 1970): 48 bits of milliseconds."""
    return uuid.UUID(int=int(moment * 1000) << 80)
