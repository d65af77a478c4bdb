"""When is a message lost? When it must have come by now.

Not by a timer, since a backlog may be hours long, and not by counting, since what a
worker holds hides what is lost. Two things are evidence, both about one queue:

- a message that was sent well after it has been claimed (queues hand out in order), or
- the queue was found empty twice, some seconds apart, both well after it was sent.

Either may be wrong once in a while, for instance about a message that a busy worker
already holds. Then a duplicate is delivered, which the claim drops.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from operations import registry
from operations.broker import Broker, BrokerUnavailable

_LATEST_CLAIMED = """
SELECT statement_timestamp() AS now, NULL AS kind, NULL AS latest
UNION ALL
SELECT NULL, kind, max(sent_at) FROM (
    SELECT kind, sent_at FROM operations_operation WHERE state = 'running'
    UNION ALL
    SELECT kind, queued_at FROM operations_attempt
    WHERE finished_at > statement_timestamp() - %(window)s * interval '1 second'
) AS claimed
GROUP BY kind
"""


class Evidence:
    """Readings of every queue, a few seconds apart."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: dict[str, list[str]] = defaultdict(list)
        for kind in registry.kinds():
            self._queues[kind.queue].append(kind.name)
        self._empty_since: dict[str, datetime] = {}
        self._next_reading = 0.0

    def gather(self) -> Iterator[tuple[list[str], datetime]]:
        """For each queue with evidence: its kinds, and the time before which what was
        sent is lost.

        :raises BrokerUnavailable: at the end, when it did not answer for one of them
        """
        if time.monotonic() < self._next_reading:
            return
        self._next_reading = time.monotonic() + settings.SEKALI_EVIDENCE_INTERVAL
        now, claimed = _latest_claimed()
        age = timedelta(seconds=settings.SEKALI_EVIDENCE_AGE)
        failure: BrokerUnavailable | None = None
        for queue, kinds in self._queues.items():
            cutoffs = [claimed[kind] - age for kind in kinds if kind in claimed]
            try:
                first_empty = self._first_of_two_empty_readings(queue, now)
            except BrokerUnavailable as error:
                # One queue that cannot be read must not hide what others have lost.
                first_empty, failure = None, error
            if first_empty is not None:
                cutoffs.append(first_empty - age)
            if cutoffs:
                yield kinds, max(cutoffs)
        if failure is not None:
            raise failure

    def _first_of_two_empty_readings(self, queue: str, now: datetime) -> datetime | None:
        if self._broker.ready(queue) > 0:
            self._empty_since.pop(queue, None)
            return None
        before = self._empty_since.get(queue)
        self._empty_since[queue] = now
        return before


def _latest_claimed() -> tuple[datetime, dict[str, datetime]]:
    with connection.cursor() as cursor:
        cursor.execute(_LATEST_CLAIMED, {"window": 6 * settings.SEKALI_EVIDENCE_INTERVAL})
        rows = cursor.fetchall()
    now = next(now for now, _, _ in rows if now is not None)
    return now, {kind: latest for _, kind, latest in rows if latest is not None}
