"""Has the broker forgotten what it was given?

The broker holds a number that only grows, and Postgres remembers the last one that was
confirmed. A broker that was flushed, restored from a snapshot, or replaced by a replica
that lagged behind, shows no number or a lower one; one that restarted shows another run
id. Then every waiting operation is owed a message again: committed first, and only then
the new number is written, so that a crash in between repeats the step.
"""

import logging
import time
from datetime import datetime

from django.db import connection

from operations import verbs
from operations.broker import Broker, Mark
from operations.crashpoints import reach

log = logging.getLogger(__name__)

#: Rows taken by one statement, so that none holds its locks for long.
BATCH = 5_000
#: Seconds between two looks; the mark moves on at the broker's own pace.
INTERVAL = 1.0

_CONFIRMED = (
    "SELECT statement_timestamp(), (SELECT ARRAY[number::text, server] FROM operations_brokermark)"
)
_NEXT = "SELECT nextval('operations_broker_mark')"
_CONFIRM = """
INSERT INTO operations_brokermark (id, number, server, confirmed_at)
VALUES (1, %(number)s, %(server)s, statement_timestamp())
ON CONFLICT (id) DO UPDATE
SET number = excluded.number, server = excluded.server, confirmed_at = excluded.confirmed_at
WHERE operations_brokermark.number < excluded.number
"""


class BrokerWatch:
    """Looks at the mark once a second. Several may look at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next_look = 0.0
        self._next_move = 0.0

    def look(self) -> bool:
        """Compare, repair if need be, and move the mark on. True: the broker was wiped.

        :raises BrokerUnavailable: it does not answer
        """
        if time.monotonic() < self._next_look:
            return False
        # Postgres first: a mark is written to the broker before it is confirmed here, so
        # a broker that remembers can only show the same number or a higher one.
        now, confirmed = _confirmed()
        found = self._broker.read_mark(confirmed.number if confirmed else None)
        wiped = confirmed is not None and _is_wiped(found, confirmed)
        if wiped and _confirmed()[1] != confirmed:
            return False  # another dispatcher was faster; the next look sees to it
        if wiped:
            self._forget_sent(now)
        if wiped or confirmed is None or time.monotonic() >= self._next_move:
            self._move_on(found.server)
        self._next_look = time.monotonic() + INTERVAL
        return wiped

    def _move_on(self, server: str) -> None:
        number = _next_number()
        self._broker.write_mark(number)
        with connection.cursor() as cursor:
            cursor.execute(_CONFIRM, {"number": number, "server": server})
        self._next_move = time.monotonic() + self._broker.mark_interval

    def _forget_sent(self, before: datetime) -> None:
        forgotten = 0
        while count := verbs.forget_sent(before, BATCH):
            forgotten += count
        log.warning("The broker was wiped: %d operations are sent again.", forgotten)
        reach("broker.forgotten")


def _is_wiped(found: Mark, confirmed: Mark) -> bool:
    assert confirmed.number is not None
    return (
        found.number is None or found.number < confirmed.number or found.server != confirmed.server
    )


def _confirmed() -> tuple[datetime, Mark | None]:
    with connection.cursor() as cursor:
        cursor.execute(_CONFIRMED)
        row = cursor.fetchone()
    assert row is not None
    now, mark = row
    return now, None if mark is None else Mark(int(mark[0]), mark[1])


def _next_number() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_NEXT)
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])
