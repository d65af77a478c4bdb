"""Leases as rows in Postgres, by the database's clock.

Every call is one statement of its own, so it is safe behind a pooler that hands out
connections per transaction, where session-level advisory locks leak. It cannot be used
inside a transaction: others would see the lease only after the commit.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from locks import process
from locks.backend import Claim, Granted, Held, HeldLease, Release
from locks.errors import LeaseError, LeaseUnavailable
from locks.fences import database

# The fence is drawn while the row is locked, and again if the row has changed meanwhile,
# so fences grow in the order in which the lease is granted.
_ACQUIRE = """
WITH granted AS (
    UPDATE locks_lease SET
        fence = CASE WHEN owner = %(owner)s AND expires_at > clock_timestamp() THEN fence
                     WHEN %(fenced)s THEN nextval('locks_fence') ELSE 0 END,
        acquired_at = CASE WHEN owner = %(owner)s AND expires_at > clock_timestamp()
                           THEN acquired_at ELSE clock_timestamp() END,
        owner = %(owner)s, host = %(host)s, pid = %(pid)s, process = %(process)s,
        expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
    WHERE key = %(key)s AND (owner = %(owner)s OR expires_at <= clock_timestamp())
    RETURNING fence
)
SELECT fence, NULL FROM granted
UNION ALL
SELECT NULL, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM locks_lease
WHERE key = %(key)s AND NOT EXISTS (SELECT FROM granted)
"""

_PROVIDE_ROW = """
INSERT INTO locks_lease (key, owner, fence, host, pid, process, acquired_at, expires_at)
VALUES (%s, '', 0, '', 0, '', clock_timestamp(), clock_timestamp())
ON CONFLICT (key) DO NOTHING
"""

_RENEW = """
UPDATE locks_lease AS held SET expires_at = clock_timestamp() + make_interval(secs => claim.ttl)
FROM unnest(%s::text[], %s::text[], %s::float8[]) AS claim (key, owner, ttl)
WHERE held.key = claim.key AND held.owner = claim.owner AND held.expires_at > clock_timestamp()
RETURNING held.key, held.owner
"""

_RELEASE = """
WITH freed AS (
    UPDATE locks_lease SET owner = '', expires_at = clock_timestamp()
    WHERE key = %(key)s AND owner = %(owner)s AND expires_at > clock_timestamp()
    RETURNING key
)
SELECT true FROM freed
UNION ALL
SELECT false FROM locks_lease
WHERE key = %(key)s AND owner <> %(owner)s AND expires_at > clock_timestamp()
    AND NOT EXISTS (SELECT FROM freed)
"""

_HELD = """
SELECT key, owner, host, pid, process, fence,
    extract(epoch FROM clock_timestamp() - acquired_at)::float8,
    extract(epoch FROM expires_at - clock_timestamp())::float8
FROM locks_lease WHERE expires_at > clock_timestamp()
"""

_PRUNE = """
DELETE FROM locks_lease WHERE key IN (
    SELECT key FROM locks_lease WHERE expires_at < clock_timestamp() - interval '1 day'
    LIMIT %s FOR UPDATE SKIP LOCKED
)
RETURNING 1
"""

#: Seconds between two tries of a waiter, at least and at most.
_PAUSES = 0.1, 0.5


class PostgresBackend:
    """See :class:`locks.backend.Backend`."""

    def acquire(self, claim: Claim, *, fenced: bool, wait: float) -> Granted | Held:  # noqa: ARG002
        wish = {
            "key": claim.key,
            "owner": claim.owner,
            "ttl": claim.ttl,
            "fenced": fenced,
            "host": process.HOST,
            "pid": os.getpid(),
            "process": process.name(),
        }
        rows = _run(_ACQUIRE, wish)
        if not rows:
            _run(_PROVIDE_ROW, [claim.key])
            rows = _run(_ACQUIRE, wish)
        if not rows:
            raise LeaseUnavailable(f"The row of {claim.key!r} was pruned meanwhile.")
        fence, remaining = rows[0]
        if fence is not None:
            return Granted(fence)
        return Held(remaining=max(0.0, remaining), waiting=0)

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        renewed = set(
            _run(
                _RENEW,
                [
                    [claim.key for claim in claims],
                    [claim.owner for claim in claims],
                    [claim.ttl for claim in claims],
                ],
            )
        )
        return [(claim.key, claim.owner) in renewed for claim in claims]

    def release(self, key: str, owner: str) -> Release:
        rows = _run(_RELEASE, {"key": key, "owner": owner})
        if not rows:
            return Release.ABSENT
        return Release.DONE if rows[0][0] else Release.FOREIGN

    def wait(self, claim: Claim, held: Held, seconds: float) -> None:  # noqa: ARG002
        """Pause for a random while: a release wakes nobody here.

        Listening for one would need a session, which a pooler does not give.
        """
        time.sleep(min(seconds, random.uniform(*_PAUSES)))  # noqa: S311

    def leave(self, claim: Claim) -> None:
        """Nothing to do: waiters are not listed."""

    def held(self) -> Iterator[HeldLease]:
        return (HeldLease(*row) for row in _run(_HELD))

    def counts(self) -> dict[str, int]:
        """Nothing: counters are kept where a write costs nothing, not in rows."""
        return {}


def prune(limit: int = 1_000) -> int:
    """Delete rows of leases that ended a day ago or earlier, ``limit`` at most; how many it did.

    Raises :class:`LeaseUnavailable`.
    """
    return len(_run(_PRUNE, [limit]))


def _run(statement: str, values: Any = None) -> list[tuple[Any, ...]]:
    with _connection() as connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def _connection() -> Iterator[Any]:
    connection = connections[database()]
    if connection.in_atomic_block:
        raise LeaseError("A lease in Postgres cannot be used inside a transaction.")
    try:
        yield connection
    except (OperationalError, InterfaceError) as error:
        connection.close()  # perhaps dead; the next call opens another
        raise LeaseUnavailable(f"The database did not answer: {error}") from error
    except DatabaseError as error:
        raise LeaseUnavailable(f"The database refused: {error}", answered=True) from error
