"""Durable fences: numbers that only grow, whatever happens to the lease server.

They come from one Postgres sequence, in blocks, so that nearly every acquire is spared the
database. A new block is fetched when the one on the lease server is used up or cannot be
trusted (see ``valkey/lua/acquire.lua``).
"""

from typing import Any

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import QuerySet

from locks import counts
from locks.errors import LeaseUnavailable

#: The sequence's increment, hence the size of a block.
BLOCK = 1000


def next_block() -> tuple[int, int]:
    """First and last fence of a block that nobody else has or will have.

    On a connection of its own, and with a commit that reaches the disk: were the number
    used while its transaction is open, a crash of the database would give it out again.
    Raises :class:`LeaseUnavailable`.
    """
    connection = connections[database()].copy()
    try:
        with connection.cursor() as cursor:
            # Taking a transaction id makes the commit wait for the disk, also for the
            # numbers that the sequence logged ahead for others.
            cursor.execute(
                "SELECT nextval('locks_fence'), pg_current_xact_id()"
                " FROM set_config('synchronous_commit', 'on', true)"
            )
            first: int = cursor.fetchone()[0]
    except DatabaseError as error:
        raise LeaseUnavailable(f"No fences from the database: {error}", answered=True) from error
    finally:
        connection.close()
    return first, first + BLOCK - 1


def database() -> str:
    """Alias of the database that has the sequence: ``settings.LOCKS_DATABASE``."""
    alias: str = getattr(settings, "LOCKS_DATABASE", "default")
    return alias


def fenced_update(
    queryset: "QuerySet[Any]", fence: int, *, column: str = "fence", **values: Any
) -> int:
    """``queryset.update(**values)`` for the rows that have seen no newer fence than this.

    The rows remember the fence in ``column`` (a ``BigIntegerField(default=0)``, not null),
    so that whoever held the lease before cannot write any more. Returns the number of rows
    changed: fewer than expected means that the lease was lost and somebody else has written
    since, so stop.

    Raises :class:`ValueError` for a fence below 1, which no lease gives out.
    """
    if fence < 1:
        raise ValueError("The lease has no fence; was it acquired, and not with fenced=False?")
    changed = queryset.filter(**{f"{column}__lte": fence}).update(**{column: fence}, **values)
    if not changed:
        counts.add("stale_write")
    return changed
