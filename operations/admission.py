"""Refusing new work when too much is waiting, so that what was accepted is done in time.

The dispatcher judges every few seconds and writes it down beside the controls; the
statement that accepts reads it there. Without a dispatcher everything is accepted. What waits
behind a dead one waits for a person, which says nothing of the load: its age does not count.
"""

import logging
import time

from django.conf import settings
from django.db import connection

from operations import registry
from operations.behind_dead import FIRST_DEAD

log = logging.getLogger(__name__)

#: Seconds between two judgements; one counts three times as long.
INTERVAL = 1.0
#: Seconds that a refused client is told to wait, at least and at most.
SHORTEST_WAIT = 10
LONGEST_WAIT = 600
#: How much is taken for a second's work when a client is told how long to wait.
A_SECONDS_WORK = 100

_JUDGE = f"""
WITH waiting AS (
    SELECT k.kind, count(o.id) AS depth,
        coalesce(extract(epoch FROM statement_timestamp()
            - min(o.created_at) FILTER (WHERE o.epoch IS NULL AND dead.seq IS NULL)), 0
        )::float8 AS oldest
    FROM unnest(%(kinds)s::text[]) AS k(kind)
    LEFT JOIN operations_operation AS o ON o.kind = k.kind AND o.state = 'pending'
    LEFT JOIN {FIRST_DEAD} AS dead ON dead.resource = o.resource AND dead.seq < o.seq
        AND o.kind = ANY(%(behind_dead)s::text[])
    GROUP BY k.kind
), judged AS (
    SELECT kind, depth, oldest,
        NOT kind = ANY(%(critical)s::text[]) AND (depth > %(depth)s OR oldest > %(age)s) AS sheds,
        least(%(longest)s, greatest(%(shortest)s + depth / %(work)s, oldest / 10))::int AS wait
    FROM waiting
)
INSERT INTO operations_kindcontrol AS c (kind, accepting, paused, shed_until, wait)
SELECT kind, true, false,
    CASE WHEN sheds THEN statement_timestamp() + %(valid)s * interval '1 second' END, wait
FROM judged
WHERE sheds OR EXISTS (SELECT 1 FROM operations_kindcontrol AS known WHERE known.kind = judged.kind)
ON CONFLICT (kind) DO UPDATE SET shed_until = excluded.shed_until, wait = excluded.wait
WHERE excluded.shed_until IS NOT NULL OR c.shed_until IS NOT NULL OR c.wait <> excluded.wait
RETURNING kind, shed_until IS NOT NULL
"""


class Admission:
    """Judges the backlog of every kind from time to time."""

    def __init__(self) -> None:
        self._next = 0.0
        self._shedding: set[str] = set()

    def judge(self) -> None:
        """Write down which kinds are refused for now. One statement, if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + INTERVAL
        kinds = list(registry.kinds())
        with connection.cursor() as cursor:
            cursor.execute(
                _JUDGE,
                {
                    "kinds": [kind.name for kind in kinds],
                    # What undoes something is never accepted from outside.
                    "behind_dead": registry.waiting(),
                    "critical": [kind.name for kind in kinds if kind.critical or kind.compensates],
                    "depth": settings.SEKALI_SHED_DEPTH,
                    "age": settings.SEKALI_SHED_AGE,
                    "shortest": SHORTEST_WAIT,
                    "longest": LONGEST_WAIT,
                    "work": A_SECONDS_WORK,
                    "valid": 3 * INTERVAL,
                },
            )
            shedding = {kind for kind, sheds in cursor.fetchall() if sheds}
        for kind in sorted(shedding - self._shedding):
            log.warning("Too much of %s is waiting; no more of it is accepted for now.", kind)
        self._shedding = shedding
