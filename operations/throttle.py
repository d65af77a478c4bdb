"""What the dispatcher may send of kinds that are limited, however many dispatchers run."""

from django.db import connection, transaction

from operations import verbs
from operations.verbs import Envelope

_LOCK = """
SELECT rate, max_running, tokens,
    extract(epoch FROM statement_timestamp() - refilled_at)::float8 AS passed
FROM operations_kindcontrol WHERE kind = %(kind)s AND NOT paused FOR UPDATE SKIP LOCKED
"""
# What is sent will run soon, so it counts.
_UNDER_WAY = """
SELECT count(*) FROM operations_operation
WHERE kind = %(kind)s AND (state = 'running' OR (state = 'pending' AND sent_at IS NOT NULL))
"""
_SPEND = """
UPDATE operations_kindcontrol SET tokens = %(tokens)s, refilled_at = statement_timestamp()
WHERE kind = %(kind)s
"""


def take_due(kind: str, limit: int) -> list[Envelope]:
    """Mark as sent what the limits of this kind allow; to be published after the commit.

    The lock on the kind's row makes dispatchers take turns; who comes second goes on.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK, {"kind": kind})
        row = cursor.fetchone()
        if row is None:
            return []
        rate, max_running, tokens, passed = row
        if rate is not None:
            # A second's worth at most, or a quiet hour would be followed by a wave.
            tokens = min(max(1.0, rate), tokens + rate * passed)
            limit = min(limit, int(tokens))
        if max_running is not None:
            cursor.execute(_UNDER_WAY, {"kind": kind})
            (under_way,) = cursor.fetchone() or (0,)
            limit = min(limit, max_running - under_way)
        taken = verbs.take_due([kind], limit) if limit > 0 else []
        if rate is not None:
            cursor.execute(_SPEND, {"kind": kind, "tokens": tokens - len(taken)})
    return taken
