"""Every change of an operation's state, one guarded statement each.

The rule behind all of them: a statement names the state it leaves and, for a worker,
the claim it holds. No row changed means that the race is lost, and the caller stops.

========================  ==========================================================
:func:`accept`            (nothing) → pending, with its idempotency record
:func:`claim`             pending → running, under a new epoch
:func:`park`              pending → pending, off the queue while its resource is busy
:func:`give_up_waiting`   pending → dead, when its resource stayed busy too long
:func:`set_aside`         pending → pending, off the queue while no worker there knows it
:func:`settle`            running → done, failed, pending or dead; by the claim only
:func:`defer`             running → pending, uncounted; by the claim only
:func:`fence`             running → running, effects begun; by the claim only
:func:`keep`              running → running, due later; by the claim only
:func:`rescue_expired`    running → pending or dead, when its heartbeat ended
:func:`rescue_claims_of`  running → pending or dead, when its process died
:func:`hand_back`         running → pending, uncounted, when its process has left
:func:`cancel`            pending → cancelled, if never claimed
:func:`revoke`            pending → cancelled, if never claimed, by remote control
:func:`replay`            dead → pending
:func:`discard`           dead → cancelled, or its compensation begins
:func:`finish_discard`    dead → cancelled, when its compensation is done
:func:`close_letter`      a letter without an operation: open → replayed or discarded
:func:`take_due`          pending → pending, marked as sent
:func:`put_off`           pending → pending, looked at later: one before it is dead
:func:`take_lost`         pending → pending, marked as sent again
:func:`forget_sent`       pending → pending, owed to the broker again
:func:`recall`            pending → pending, owed again under other controls
========================  ==========================================================

Time is the database's: ``statement_timestamp()``, since the clocks of two hosts differ
and ``now()`` stands still inside a transaction.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from locks.cache import records
from operations import problems, registry
from operations.claimed_row import ClaimedRow
from operations.database import preparing
from operations.endings import Dead, Defer, Done, Failure, Refusal, Retry
from operations.errors import ClaimLost
from operations.models import LetterState, State
from operations.outcomes import Category, Outcome
from operations.signature import signature


class Envelope(NamedTuple):
    """All that a message needs to say of an operation.

    ``sent_at`` is the row's at this publish. The claim takes it from the message, so that a
    message that was overtaken by a second one of its operation is no evidence that all the
    others between them are lost.
    """

    id: uuid.UUID
    kind: str
    sent_at: datetime | None = None


class Crowding(NamedTuple):
    """An owner, and the kind of which he has enough messages in the broker."""

    owner: int
    kind: str


@dataclass(frozen=True)
class Accepted:
    """An operation as a client may see it, and whether this request made it."""

    operation: dict[str, Any]
    replayed: bool
    fingerprint: str
    fingerprint_version: int


@dataclass(frozen=True)
class Rescued:
    """An attempt whose worker is gone. Its lease, if it had one, is still held."""

    id: uuid.UUID
    kind: str
    resource: str
    epoch: int
    state: State


#: Kinds that are paused or limited; ``k`` is an operation's row or its kind.
_HELD = """
EXISTS (SELECT 1 FROM operations_kindcontrol AS control WHERE control.kind = {k}
        AND (control.paused OR control.rate IS NOT NULL OR control.max_running IS NOT NULL))
"""


def _first_dead(resource: str, condition: str = "true") -> str:
    """The first operation of a resource that is dead, its letter undecided.

    Asking for the first one keeps the planner on the index; asked whether there is one, it
    may read the table instead.
    """
    return f"""
        SELECT dead.seq FROM operations_operation AS dead
        WHERE dead.resource = {resource} AND dead.resource <> '' AND dead.state = 'dead'
          AND {condition}
        ORDER BY dead.seq LIMIT 1
    """


def _behind_dead(row: str, but: str = "") -> str:
    """Is this row of a kind that waits behind a dead one (``behind_dead="wait"``), and was one
    accepted before it on its resource that is dead now? ``but`` is the id of one that does not
    count."""
    first = _first_dead(f"{row}.resource", f"dead.id <> {but}" if but else "true")
    return f"({row}.kind = ANY(%(waiting)s::text[]) AND COALESCE(({first}) < {row}.seq, false))"


#: Wakes the next eligible row of every resource in ``freed`` (id, resource, seq, state). SKIP
#: LOCKED, because a claim holds its row while it waits for the unique index, and would
#: deadlock with us. A head that is already sent needs no second message; one of a kind that is
#: held becomes due, for the dispatcher. What has become of the freed one this statement cannot
#: see, and is told. (The heads are a CTE of their own: a subquery with LIMIT in FROM may run
#: once for each row it is joined to.)
_WAKE = f"""
heads AS MATERIALIZED (
    SELECT next.*, {_HELD.format(k="next.kind")} AS held, freed.id AS freed_id,
        freed.seq < next.seq AND (
            (freed.state = 'pending' AND next.kind = ANY(%(fifo)s::text[]))
            OR (freed.state = 'dead' AND next.kind = ANY(%(waiting)s::text[]))
        ) AS behind_freed
    FROM freed CROSS JOIN LATERAL (
        SELECT id, kind, resource, seq FROM operations_operation
        WHERE resource = freed.resource AND state = 'pending'
          AND not_before <= statement_timestamp() AND id <> freed.id
        ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS next
    WHERE freed.resource <> ''
), touched AS (
    UPDATE operations_operation AS o
    SET sent_at = CASE WHEN NOT heads.held THEN statement_timestamp() END,
        due_at = statement_timestamp()
            + CASE WHEN heads.held THEN 0 ELSE %(evidence_age)s END * interval '1 second'
    FROM heads
    WHERE o.id = heads.id AND o.sent_at IS NULL
      AND NOT (heads.held AND o.due_at <= statement_timestamp())
      AND NOT heads.behind_freed AND NOT {_behind_dead("o", but="heads.freed_id")}
    RETURNING o.id, o.kind, o.sent_at
), woken AS (
    SELECT id, kind, sent_at FROM touched WHERE sent_at IS NOT NULL
)
"""


def _waking() -> dict[str, Any]:
    """The parameters of ``_WAKE``."""
    return {
        "evidence_age": settings.SEKALI_EVIDENCE_AGE,
        "fifo": registry.fifo(),
        "waiting": registry.waiting(),
    }


#: What a client may see of an operation.
VISIBLE = (
    "id, kind, state, resource, result, error, attempts, not_before, created_at, "
    "started_at, finished_at, version"
)
_VISIBLE_NAMES = VISIBLE.replace(" ", "").split(",")
_VISIBLE_OF_O = ", ".join(f"o.{name}" for name in _VISIBLE_NAMES)

# --- accept --------------------------------------------------------------------------

_ACCEPT = f"""
WITH record AS (
    INSERT INTO operations_idempotencyrecord
        (owner_id, kind, key, fingerprint, fingerprint_version, operation_id, replays,
         created_at, expires_at)
    SELECT %(owner)s, %(kind)s, %(key)s, %(fingerprint)s, %(fingerprint_version)s, %(id)s, 0,
            statement_timestamp(), statement_timestamp() + %(retention)s
    WHERE NOT EXISTS (SELECT 1 FROM operations_kindcontrol AS control
        WHERE control.kind = %(kind)s
          AND (NOT control.accepting OR control.shed_until > statement_timestamp()))
    ON CONFLICT (owner_id, kind, key) DO NOTHING
    RETURNING operation_id, %(send)s AND NOT {_HELD.format(k="%(kind)s")} AND NOT (
        %(kind)s = ANY(%(waiting)s::text[])
        AND ({_first_dead("%(resource)s")}) IS NOT NULL
    ) AND (
        SELECT count(*) <= %(burst)s FROM (
            SELECT kind, state FROM operations_operation AS earlier
            WHERE earlier.owner_id = %(owner)s ORDER BY seq DESC LIMIT 2 * %(burst)s
        ) AS latest
        WHERE kind = %(kind)s AND state = 'pending'
    ) AS send
)
INSERT INTO operations_operation
    (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
     due_at, sent_at, effects_began, attempts, losses, bugs, deferrals, precondition,
     request_id, traceparent, created_at, version)
SELECT operation_id, %(owner)s, %(kind)s, %(payload)s::jsonb, %(payload_revision)s,
    %(resource)s, 'pending', '', statement_timestamp(),
    statement_timestamp() + CASE WHEN send THEN %(evidence_age)s ELSE 0 END * interval '1 second',
    CASE WHEN send THEN statement_timestamp() END,
    false, 0, 0, 0, 0, %(precondition)s::jsonb, %(request_id)s, %(traceparent)s,
    statement_timestamp(), 1
FROM record
RETURNING {VISIBLE}, sent_at IS NOT NULL AS sent
"""


def accept(
    *,
    id: uuid.UUID,
    owner: int,
    kind: str,
    key: str,
    fingerprint: str,
    fingerprint_version: int,
    payload: dict[str, Any],
    payload_revision: int,
    resource: str,
    precondition: dict[str, Any] | None,
    retention: timedelta,
    send: bool,
    request_id: str = "",
    traceparent: str = "",
) -> dict[str, Any] | None:
    """Insert an operation and the record of its key, or neither. One statement.

    :param send: the caller can publish at once; otherwise the dispatcher owes it
    :returns: the operation, with ``sent`` when the caller is to publish it, or None: the
        key is known already, or nothing of the kind is taken in, see :func:`admission`
    """
    return _one(
        _ACCEPT,
        {
            "id": id,
            "owner": owner,
            "kind": kind,
            "key": key,
            "fingerprint": fingerprint,
            "fingerprint_version": fingerprint_version,
            "payload": json.dumps(payload),
            "payload_revision": payload_revision,
            "resource": resource,
            "precondition": None if precondition is None else json.dumps(precondition),
            "retention": retention,
            "waiting": registry.waiting(),
            # An unsent row is the dispatcher's at once.
            "evidence_age": settings.SEKALI_EVIDENCE_AGE,
            "send": send,
            # Who has so much waiting is served by the dispatcher, in turn with others.
            "burst": settings.SEKALI_OWNER_WINDOW // 10,
            "request_id": request_id,
            "traceparent": traceparent,
        },
        prepared=True,
    )


_ADMISSION = """
SELECT accepting, wait FROM operations_kindcontrol
WHERE kind = %(kind)s AND (NOT accepting OR shed_until > statement_timestamp())
"""


def refused(kind: str) -> tuple[bool, int] | None:
    """Is nothing of this kind taken in? None: it is.

    :returns: whether that is because too much is waiting, and the seconds to wait
    """
    row = _one(_ADMISSION, {"kind": kind})
    return None if row is None else (bool(row["accepting"]), int(row["wait"]))


_FIND = f"""
WITH record AS (
    UPDATE operations_idempotencyrecord SET replays = replays + 1
    WHERE owner_id = %(owner)s AND kind = %(kind)s AND key = %(key)s
    RETURNING operation_id, fingerprint, fingerprint_version
)
SELECT record.fingerprint, record.fingerprint_version, {_VISIBLE_OF_O}
FROM record JOIN operations_operation AS o ON o.id = record.operation_id
"""


def find_by_key(*, owner: int, kind: str, key: str) -> Accepted | None:
    """The operation that a key stands for, counting the replay. One statement."""
    row = _one(_FIND, {"owner": owner, "kind": kind, "key": key}, prepared=True)
    if row is None:
        return None
    fingerprint, version = row.pop("fingerprint"), row.pop("fingerprint_version")
    return Accepted(row, replayed=True, fingerprint=fingerprint, fingerprint_version=version)


# --- claim ---------------------------------------------------------------------------

_CLAIM_RETURNS = """
    o.id, o.owner_id, o.kind, o.payload, o.payload_revision, o.resource, o.epoch, o.attempts,
    o.losses, o.bugs, o.effects_began, o.deferred_since, o.precondition, o.request_id,
    o.traceparent, o.sent_at AS queued_at, o.started_at, o.created_at, o.claimed_by,
    (SELECT key FROM operations_idempotencyrecord WHERE operation_id = o.id) AS idempotency_key
"""

#: Paused, or limited and not sent by the dispatcher within the limits.
_BLOCKED = """
EXISTS (SELECT 1 FROM operations_kindcontrol AS control WHERE control.kind = o.kind
        AND (control.paused OR (o.sent_at IS NULL
             AND (control.rate IS NOT NULL OR control.max_running IS NOT NULL))))
"""

# NULLIF: rows without a resource would otherwise be looked for among all others without
# one. Three questions: each has an index that answers it without reading a backlog. And the
# id twice, or the planner may, on a young table, go through all that is open instead.
_CLAIM = f"""
UPDATE operations_operation AS o
SET state = 'running',
    epoch = nextval('operations_epoch'),
    attempts = o.attempts + 1,
    claimed_by = %(claimed_by)s,
    started_at = statement_timestamp(),
    due_at = statement_timestamp() + %(ttl)s * interval '1 second',
    sent_at = LEAST(o.sent_at, %(sent_at)s::timestamptz),
    version = o.version + 1
FROM (
    SELECT id, epoch, started_at FROM operations_operation
    WHERE id = %(id)s AND state = 'pending' FOR UPDATE
) AS prior
WHERE o.id = %(id)s AND o.id = prior.id AND o.state = 'pending' AND o.kind = %(kind)s
  AND o.not_before <= statement_timestamp()
  AND NOT {_BLOCKED}
  AND NOT EXISTS (
    SELECT 1 FROM operations_operation AS other
    WHERE other.resource = NULLIF(o.resource, '') AND other.resource <> ''
      AND other.state = 'running'
  )
  AND (NOT %(fifo)s OR o.resource = '' OR o.seq = (
    SELECT eldest.seq FROM operations_operation AS eldest
    WHERE eldest.resource = o.resource AND eldest.state = 'pending'
    ORDER BY eldest.seq LIMIT 1
  ))
  AND NOT {_behind_dead("o")}
RETURNING {_CLAIM_RETURNS}, prior.epoch AS prior_epoch, prior.started_at AS prior_started_at
"""

_CLAIM_MADE = f"""
SELECT {_CLAIM_RETURNS}, o.epoch AS prior_epoch, o.started_at AS prior_started_at
FROM operations_operation AS o
WHERE o.id = %(id)s AND o.state = 'running' AND o.claimed_by = %(claimed_by)s
"""


def claim(
    id: uuid.UUID, kind: str, *, claimed_by: str, fifo: bool, sent_at: datetime | None = None
) -> ClaimedRow | None:
    """Take a pending operation whose time has come and whose resource is free.

    :param claimed_by: unique for this delivery, see :func:`claim_made`
    :param sent_at: when the message that led here was sent, see :class:`Envelope`
    :raises IntegrityError: the resource was taken by somebody in this very moment
    """
    row = _one(
        _CLAIM,
        {
            "id": id,
            "kind": kind,
            "claimed_by": claimed_by,
            "ttl": settings.SEKALI_CLAIM_TTL,
            "fifo": fifo,
            "sent_at": sent_at,
            "waiting": registry.waiting(),
        },
        prepared=True,
    )
    return None if row is None else ClaimedRow(**row)


def claim_made(id: uuid.UUID, *, claimed_by: str) -> ClaimedRow | None:
    """The claim of this very delivery, when its answer was lost with the connection."""
    row = _one(_CLAIM_MADE, {"id": id, "claimed_by": claimed_by})
    return None if row is None else ClaimedRow(**row)


#: For how long a row behind a dead one is left alone: a tenth of the time it has waited, since
#: what it waits for is a person. Whoever decides makes it due at once.
_PUT_OFF = """
LEAST(%(longest)s * interval '1 second', GREATEST(%(delay)s * interval '1 second',
    (statement_timestamp() - {row}.created_at) / 10))
"""
#: The longest of these times, in seconds.
LONGEST_PUT_OFF = 300

# Whoever decided about the dead one meanwhile has made the row due; that must stand.
_PARK = f"""
UPDATE operations_operation AS o
SET sent_at = NULL,
    due_at = statement_timestamp() + CASE WHEN seen.behind THEN {_PUT_OFF.format(row="o")}
        ELSE %(delay)s * interval '1 second' END,
    deferrals = o.deferrals + CASE WHEN seen.behind THEN 0 ELSE 1 END,
    deferred_since = CASE WHEN NOT seen.behind
        THEN COALESCE(o.deferred_since, statement_timestamp()) END
FROM (
    SELECT id, due_at, {_behind_dead("seen_row")} AS behind FROM operations_operation AS seen_row
    WHERE id = %(id)s
) AS seen
WHERE o.id = %(id)s AND o.id = seen.id AND o.kind = %(kind)s AND o.state = 'pending'
  AND o.not_before <= statement_timestamp() AND NOT {_BLOCKED}
  AND NOT (seen.behind AND o.due_at <> seen.due_at)
RETURNING COALESCE(
    o.deferred_since < statement_timestamp() - %(limit)s * interval '1 second', false) AS too_long
"""


def park(id: uuid.UUID, kind: str) -> bool | None:
    """Take an operation whose resource is busy off the queue for a few seconds, uncounted.

    Behind a dead one it waits for a person, for as long as that takes, and that is no time
    of waiting for its resource.

    :returns: None when it was not waiting (a duplicate or early delivery, or its kind is
        paused or limited), else whether it has waited longer than its bound
    """
    row = _one(
        _PARK,
        {
            "id": id,
            "kind": kind,
            "delay": settings.SEKALI_PARK_DELAY,
            "longest": LONGEST_PUT_OFF,
            "limit": settings.SEKALI_DEFER_LIMIT,
            "waiting": registry.waiting(),
        },
        prepared=True,
    )
    return None if row is None else bool(row["too_long"])


_GIVE_UP_WAITING = f"""
WITH freed AS (
    UPDATE operations_operation AS o
    SET state = 'dead', due_at = NULL, finished_at = statement_timestamp(), version = version + 1,
        error = %(error)s::jsonb
    WHERE id = %(id)s AND state = 'pending' AND NOT {_behind_dead("o")}
      AND deferred_since < statement_timestamp() - %(limit)s * interval '1 second'
    RETURNING id, kind, resource, seq, state, attempts, created_at, started_at
), letter AS (
    INSERT INTO operations_deadletter
        (operation_id, kind, idempotency_key, attempts, first_processed_at, last_processed_at,
         category, error_type, message, signature, dependency, traceback, queue, state,
         created_at, reason)
    SELECT id, kind,
        COALESCE((SELECT key FROM operations_idempotencyrecord WHERE operation_id = freed.id), ''),
        attempts, (SELECT min(started_at) FROM operations_attempt WHERE operation_id = freed.id),
        started_at, %(category)s, %(error_type)s, %(message)s, %(signature)s, '', '', '',
        'open', statement_timestamp(), ''
    FROM freed
), {_WAKE}
SELECT id, kind, sent_at FROM woken
"""


def give_up_waiting(id: uuid.UUID, failure: Failure) -> list[Envelope]:
    """End an operation that could not be begun within all bounds."""
    return _envelopes(
        _GIVE_UP_WAITING,
        {
            "id": id,
            "limit": settings.SEKALI_DEFER_LIMIT,
            "error": json.dumps(problems.of_failure(failure)),
            "category": failure.category,
            "error_type": failure.error_type,
            "message": failure.message,
            "signature": failure.signature,
            **_waking(),
        },
    )


_SET_ASIDE = """
WITH parked AS (
    UPDATE operations_operation
    SET sent_at = NULL,
        due_at = statement_timestamp() + %(delay)s * interval '1 second',
        deferrals = deferrals + 1,
        deferred_since = COALESCE(deferred_since, statement_timestamp())
    WHERE id = %(id)s AND kind = %(kind)s AND state = 'pending'
    RETURNING deferred_since < statement_timestamp() - %(limit)s * interval '1 second' AS too_long
)
SELECT (SELECT too_long FROM parked) AS too_long
FROM operations_operation WHERE id = %(id)s AND kind = %(kind)s
"""


def set_aside(id: uuid.UUID, kind: str) -> bool | None:
    """A message of this operation came to somebody who cannot make anything of it.

    The operation is sent again after a while: to a worker of another version, perhaps.

    :returns: None when there is no such operation of this kind, else whether it has been
        waiting longer than its bound
    """
    row = _one(
        _SET_ASIDE,
        {
            "id": id,
            "kind": kind,
            "delay": settings.SEKALI_PARK_DELAY,
            "limit": settings.SEKALI_DEFER_LIMIT,
        },
    )
    return None if row is None else bool(row["too_long"])


_EXISTS = "SELECT 1 AS found FROM operations_operation WHERE id = %(id)s AND kind = %(kind)s"


def exists(id: uuid.UUID, kind: str) -> bool:
    """Is there an operation of this id and kind, in whatever state?"""
    return _one(_EXISTS, {"id": id, "kind": kind}) is not None


# --- while running -------------------------------------------------------------------

_FENCE = """
UPDATE operations_operation SET effects_began = true
WHERE id = %(id)s AND state = 'running' AND epoch = %(epoch)s
"""
_INVALIDATE = records.insert("%(invalidated)s", "%(repair_delay)s", "freed")
_FENCE_AND_INVALIDATE = f"""
WITH freed AS ({_FENCE} RETURNING id), invalidation AS ({_INVALIDATE})
SELECT id FROM freed
"""


def fence(claim: ClaimedRow, invalidated: Sequence[str] = ()) -> None:
    """The last statement before a COMMIT in the middle of an attempt.

    :param invalidated: keys of the cache to record as invalidated
    :raises ClaimLost: the claim is no longer ours; let the transaction roll back
    """
    parameters: dict[str, Any] = {"id": claim.id, "epoch": claim.epoch}
    statement = _FENCE
    if invalidated:
        statement = _FENCE_AND_INVALIDATE
        parameters |= {"invalidated": list(invalidated), "repair_delay": records.delay()}
    if not _changed(statement, parameters, prepared=True):
        raise ClaimLost(claim.id)


_KEEP = """
UPDATE operations_operation SET due_at = statement_timestamp() + %(ttl)s * interval '1 second'
WHERE id = %(id)s AND state = 'running' AND epoch = %(epoch)s
"""


def keep(claim: ClaimedRow) -> bool:
    """A heartbeat: put off the rescue. False: the claim is lost."""
    parameters = {"id": claim.id, "epoch": claim.epoch, "ttl": settings.SEKALI_CLAIM_TTL}
    return _changed(_KEEP, parameters, prepared=True) == 1


# --- settle --------------------------------------------------------------------------

_SETTLE_TEMPLATE = f"""
WITH freed AS (
    UPDATE operations_operation
    SET state = %(state)s,
        claimed_by = '',
        version = version + 1,
        result = %(result)s::jsonb,
        error = %(error)s::jsonb,
        effects_began = effects_began OR %(effects)s,
        bugs = bugs + %(bug)s,
        deferred_since = NULL,
        sent_at = CASE WHEN %(ended)s THEN sent_at END,
        not_before = CASE WHEN %(ended)s THEN not_before
            ELSE statement_timestamp() + %(delay)s * interval '1 second' END,
        due_at = CASE WHEN NOT %(ended)s
            THEN statement_timestamp() + %(delay)s * interval '1 second' END,
        finished_at = CASE WHEN %(ended)s THEN statement_timestamp() END
    WHERE id = %(id)s AND state = 'running' AND epoch = %(epoch)s
    RETURNING id, kind, resource, seq, epoch, attempts, started_at, state
), attempt AS (
    INSERT INTO operations_attempt
        (operation_id, epoch, kind, worker, queued_at, started_at, finished_at, outcome,
         category, dependency, error_type, message, next_delay)
    SELECT id, epoch, kind, %(worker)s, %(queued_at)s, started_at, statement_timestamp(),
        %(outcome)s, %(category)s, %(dependency)s, %(error_type)s, %(message)s, %(next_delay)s
    FROM freed
), record AS (
    UPDATE operations_idempotencyrecord AS r
    SET expires_at = statement_timestamp() + %(retention)s
    FROM freed WHERE %(ended)s AND r.operation_id = freed.id
), letter AS (
    INSERT INTO operations_deadletter
        (operation_id, kind, idempotency_key, attempts, first_processed_at, last_processed_at,
         category, dependency, error_type, message, traceback, signature, queue, state,
         created_at, reason)
    SELECT id, kind, %(key)s, attempts,
        COALESCE((SELECT min(started_at) FROM operations_attempt WHERE operation_id = freed.id),
                 started_at),
        statement_timestamp(), %(category)s, %(dependency)s, %(error_type)s, %(message)s,
        %(traceback)s, %(signature)s, '', 'open', statement_timestamp(), ''
    FROM freed WHERE state = 'dead'
), {{invalidation}}{_WAKE}
SELECT (SELECT id FROM freed) AS settled, woken.id, woken.kind, woken.sent_at
FROM (SELECT 1) AS always LEFT JOIN woken ON true
"""
_SETTLE = _SETTLE_TEMPLATE.format(invalidation="")
_SETTLE_AND_INVALIDATE = _SETTLE_TEMPLATE.format(invalidation=f"invalidation AS ({_INVALIDATE}),")


def settle(
    claim: ClaimedRow,
    ending: Done | Refusal | Retry | Dead,
    *,
    retention: timedelta,
    invalidated: Sequence[str] = (),
) -> list[Envelope]:
    """End the attempt, with its row in the history, and wake whoever waits for the resource.

    :param invalidated: keys of the cache to record as invalidated
    :returns: what was woken, marked as sent and so to be published after the commit
    :raises ClaimLost: the claim is no longer ours; let the transaction roll back
    """
    parameters: dict[str, Any] = {
        "id": claim.id,
        "epoch": claim.epoch,
        "worker": claim.claimed_by,
        "queued_at": claim.queued_at,
        "key": claim.idempotency_key or "",
        "retention": retention,
        **_waking(),
        "result": None,
        "error": None,
        "effects": False,
        "bug": 0,
        "delay": 0,
        "ended": True,
        "category": "",
        "dependency": "",
        "error_type": "",
        "message": "",
        "traceback": "",
        "signature": "",
        "next_delay": None,
    }
    match ending:
        case Done(result):
            parameters |= {
                "state": State.DONE,
                "outcome": Outcome.DONE,
                "result": None if result is None else json.dumps(result),
                "effects": True,
            }
        case Refusal(code, detail):
            parameters |= {
                "state": State.FAILED,
                "outcome": Outcome.REFUSED,
                "error": json.dumps(problems.of_refusal(code, detail)),
                "error_type": code[:200],
                "message": detail,
            }
        case Retry(failure, delay):
            parameters |= {
                "state": State.PENDING,
                "outcome": Outcome.RETRY,
                "ended": False,
                "delay": delay,
                "next_delay": delay,
                "bug": int(failure.category == Category.BUG),
            } | _columns(failure)
        case Dead(failure):
            parameters |= {
                "state": State.DEAD,
                "outcome": Outcome.DEAD,
                "error": json.dumps(problems.of_failure(failure)),
                "bug": int(failure.category == Category.BUG),
            } | _columns(failure)
    statement = _SETTLE
    if invalidated:
        statement = _SETTLE_AND_INVALIDATE
        parameters |= {"invalidated": list(invalidated), "repair_delay": records.delay()}
    rows = _all(statement, parameters, prepared=True)
    if rows[0]["settled"] is None:
        raise ClaimLost(claim.id)
    return _enveloped(row for row in rows if row["id"] is not None)


def _columns(failure: Failure) -> dict[str, Any]:
    return {
        "category": failure.category,
        "dependency": failure.dependency,
        "error_type": failure.error_type,
        "message": failure.message,
        "traceback": failure.traceback,
        "signature": failure.signature,
    }


_DEFER = f"""
WITH freed AS (
    UPDATE operations_operation
    SET state = 'pending', claimed_by = '', version = version + 1, sent_at = NULL,
        attempts = attempts - 1,
        epoch = CASE WHEN %(began)s THEN epoch ELSE %(prior_epoch)s END,
        started_at = CASE WHEN %(began)s THEN started_at ELSE %(prior_started_at)s END,
        deferrals = deferrals + 1,
        deferred_since = COALESCE(deferred_since, statement_timestamp()),
        not_before = statement_timestamp() + %(delay)s * interval '1 second',
        due_at = statement_timestamp() + %(delay)s * interval '1 second'
    WHERE id = %(id)s AND state = 'running' AND epoch = %(epoch)s
    RETURNING id, resource, seq, state
), {_WAKE}
SELECT (SELECT id FROM freed) AS settled, woken.id, woken.kind, woken.sent_at
FROM (SELECT 1) AS always LEFT JOIN woken ON true
"""


def defer(claim: ClaimedRow, ending: Defer) -> list[Envelope]:
    """End the attempt as if it had not been: uncounted, to be tried after a while.

    Before the handler began, also the prior epoch comes back, so that an operation that
    never ran can still be cancelled.

    :raises ClaimLost: the claim is no longer ours
    """
    rows = _all(
        _DEFER,
        {
            "id": claim.id,
            "epoch": claim.epoch,
            "began": ending.began,
            "prior_epoch": claim.prior_epoch,
            "prior_started_at": claim.prior_started_at,
            "delay": ending.delay,
            **_waking(),
        },
        prepared=True,
    )
    if rows[0]["settled"] is None:
        raise ClaimLost(claim.id)
    return _enveloped(row for row in rows if row["id"] is not None)


# --- rescue --------------------------------------------------------------------------

_WORKER_LOST = Failure(
    Category.WORKER_LOST, "WorkerLost", "The worker that held this operation ended without a word."
)
_TIMED_OUT = Failure(
    Category.TIMEOUT, "TimeLimitExceeded", "The attempt did not end within the hard time limit."
)

_RESCUE = """
WITH lost AS (
    SELECT id, claimed_by, sent_at, started_at, epoch FROM operations_operation
    WHERE state = 'running' AND {which}
    ORDER BY due_at LIMIT 500 FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE operations_operation AS o
    SET state = CASE WHEN o.losses + 1 >= %(max_losses)s THEN 'dead' ELSE 'pending' END,
        losses = o.losses + 1,
        claimed_by = '',
        version = o.version + 1,
        sent_at = NULL,
        not_before = statement_timestamp(),
        due_at = CASE WHEN o.losses + 1 < %(max_losses)s THEN statement_timestamp() END,
        finished_at = CASE WHEN o.losses + 1 >= %(max_losses)s THEN statement_timestamp() END,
        error = CASE WHEN o.losses + 1 >= %(max_losses)s THEN %(error)s::jsonb END
    FROM lost WHERE o.id = lost.id AND o.state = 'running' AND o.epoch = lost.epoch
    RETURNING o.id, o.kind, o.resource, o.seq, o.epoch, o.attempts, o.state,
        lost.claimed_by, lost.sent_at, lost.started_at
), attempt AS (
    INSERT INTO operations_attempt
        (operation_id, epoch, kind, worker, queued_at, started_at, finished_at, outcome,
         category, dependency, error_type, message, next_delay)
    SELECT id, epoch, kind, claimed_by, sent_at, started_at, statement_timestamp(), 'lost',
        %(category)s, '', %(error_type)s, %(message)s, CASE WHEN state = 'pending' THEN 0 END
    FROM freed
), letter AS (
    INSERT INTO operations_deadletter
        (operation_id, kind, idempotency_key, attempts, first_processed_at, last_processed_at,
         category, dependency, error_type, message, traceback, signature, queue, state,
         created_at, reason)
    SELECT id, kind,
        COALESCE((SELECT key FROM operations_idempotencyrecord WHERE operation_id = freed.id), ''),
        attempts,
        COALESCE((SELECT min(started_at) FROM operations_attempt WHERE operation_id = freed.id),
                 started_at),
        statement_timestamp(), %(category)s, '', %(error_type)s, %(message)s, '',
        %(signature)s, '', 'open', statement_timestamp(), ''
    FROM freed WHERE state = 'dead'
), {wake}
SELECT id, kind, resource, epoch, state, NULL AS sent_at, false AS woken FROM freed
UNION ALL
SELECT id, kind, '', 0, 'pending', sent_at, true FROM woken
"""
_RESCUE_EXPIRED = _RESCUE.format(which="due_at <= statement_timestamp()", wake=_WAKE)
_RESCUE_OF_PROCESS = _RESCUE.format(which="starts_with(claimed_by, %(process)s)", wake=_WAKE)


def rescue_expired() -> tuple[list[Rescued], list[Envelope]]:
    """Take back what runs without a heartbeat, and tell what was woken by that."""
    return _rescue(_RESCUE_EXPIRED, {}, _WORKER_LOST)


def rescue_claims_of(
    process: str, *, timed_out: bool = False
) -> tuple[list[Rescued], list[Envelope]]:
    """Take back what a process held that is known to be dead.

    :param process: as its claims name it, with its start time, so that a late notice does
        not hit the claims of a process that got the same number
    :param timed_out: it was killed because the attempt did not end in time
    """
    return _rescue(
        _RESCUE_OF_PROCESS, {"process": process + "#"}, _TIMED_OUT if timed_out else _WORKER_LOST
    )


_HAND_BACK = f"""
WITH held AS (
    SELECT id, claimed_by, sent_at, epoch FROM operations_operation
    WHERE state = 'running' AND starts_with(claimed_by, %(process)s) FOR UPDATE
), freed AS (
    UPDATE operations_operation AS o
    SET state = 'pending', claimed_by = '', version = o.version + 1, sent_at = NULL,
        attempts = o.attempts - 1, not_before = statement_timestamp(),
        due_at = statement_timestamp()
    FROM held WHERE o.id = held.id AND o.state = 'running' AND o.epoch = held.epoch
    RETURNING o.id, o.kind, o.resource, o.seq, o.epoch, o.state, o.started_at,
        held.claimed_by, held.sent_at
), attempt AS (
    INSERT INTO operations_attempt
        (operation_id, epoch, kind, worker, queued_at, started_at, finished_at, outcome,
         category, dependency, error_type, message, next_delay)
    SELECT id, epoch, kind, claimed_by, sent_at, started_at, statement_timestamp(), 'revoked',
        '', '', 'Terminated', %(message)s, 0
    FROM freed WHERE %(revoked)s
), {_WAKE}
SELECT id, kind, resource, epoch, state, NULL AS sent_at, false AS woken FROM freed
UNION ALL
SELECT id, kind, '', 0, 'pending', sent_at, true FROM woken
"""


def hand_back(process: str, *, revoked: bool = False) -> tuple[list[Rescued], list[Envelope]]:
    """Give back, uncounted, what a process held that was asked to leave and has left.

    :param revoked: remote control ended it because of what it was working on; the history
        of the operation tells
    """
    return _split(
        _all(
            _HAND_BACK,
            {
                "process": process + "#",
                "revoked": revoked,
                "message": "The attempt was ended by remote control; it is made again.",
                **_waking(),
            },
        )
    )


def _rescue(
    sql: str, which: dict[str, Any], failure: Failure
) -> tuple[list[Rescued], list[Envelope]]:
    rows = _all(
        sql,
        which
        | {
            "max_losses": settings.SEKALI_MAX_LOSSES,
            "error": json.dumps(problems.of_failure(failure)),
            "category": failure.category,
            "error_type": failure.error_type,
            "message": failure.message,
            "signature": signature(failure.category, failure.error_type, failure.message, ""),
            **_waking(),
        },
    )
    return _split(rows)


def _split(rows: list[dict[str, Any]]) -> tuple[list[Rescued], list[Envelope]]:
    freed = [
        Rescued(row["id"], row["kind"], row["resource"], row["epoch"], State(row["state"]))
        for row in rows
        if not row["woken"]
    ]
    return freed, _enveloped(row for row in rows if row["woken"])


# --- by people -----------------------------------------------------------------------

_CANCEL = f"""
WITH freed AS (
    UPDATE operations_operation
    SET state = 'cancelled', due_at = NULL, finished_at = statement_timestamp(),
        version = version + 1
    WHERE id = %(id)s AND owner_id = %(owner)s AND state = 'pending' AND epoch IS NULL
      AND (%(versions)s::int[] IS NULL OR version = ANY(%(versions)s::int[]))
    RETURNING {VISIBLE}, seq
), record AS (
    UPDATE operations_idempotencyrecord AS r
    SET expires_at = statement_timestamp() + (r.expires_at - r.created_at)
    FROM freed WHERE r.operation_id = freed.id
), {_WAKE}
SELECT {", ".join(f"freed.{name}" for name in _VISIBLE_NAMES)},
    woken.id AS woken_id, woken.kind AS woken_kind, woken.sent_at AS woken_sent_at
FROM freed LEFT JOIN woken ON true
"""


def cancel(
    id: uuid.UUID, *, owner: int, versions: list[int] | None
) -> tuple[dict[str, Any], list[Envelope]] | None:
    """End an operation that was never claimed.

    :param versions: cancel only if its version is one of these
    :returns: the cancelled operation and what was woken, or None: not cancellable
    """
    row = _one(
        _CANCEL,
        {
            "id": id,
            "owner": owner,
            "versions": versions,
            **_waking(),
        },
    )
    if row is None:
        return None
    woken_id, kind, sent_at = (row.pop(f"woken_{name}") for name in Envelope._fields)
    return row, [] if woken_id is None else [Envelope(woken_id, kind, sent_at)]


_REVOKE = f"""
WITH freed AS (
    UPDATE operations_operation
    SET state = 'cancelled', due_at = NULL, finished_at = statement_timestamp(),
        version = version + 1, error = %(error)s::jsonb
    WHERE id = %(id)s AND state = 'pending' AND epoch IS NULL
    RETURNING id, resource, seq, state
), record AS (
    UPDATE operations_idempotencyrecord AS r
    SET expires_at = statement_timestamp() + (r.expires_at - r.created_at)
    FROM freed WHERE r.operation_id = freed.id
), {_WAKE}
SELECT (SELECT id FROM freed) AS revoked, woken.id, woken.kind, woken.sent_at
FROM (SELECT 1) AS always LEFT JOIN woken ON true
"""


def revoke(id: uuid.UUID) -> list[Envelope] | None:
    """End an operation that was never claimed, because remote control revoked its task.

    :returns: what was woken, or None: it cannot be revoked, since it may have had effects
    """
    rows = _all(
        _REVOKE,
        {
            "id": id,
            "error": json.dumps(problems.of_revocation()),
            **_waking(),
        },
    )
    if rows[0]["revoked"] is None:
        return None
    return _enveloped(row for row in rows if row["id"] is not None)


_REPLAY = """
WITH letter AS (
    UPDATE operations_deadletter
    SET state = 'replayed', decided_by_id = %(by)s, decided_at = statement_timestamp(),
        reason = %(reason)s
    WHERE id = %(letter)s AND state = 'open'
      AND operation_id IN (SELECT id FROM operations_operation WHERE state = 'dead')
    RETURNING operation_id
)
UPDATE operations_operation AS o
SET state = 'pending', error = NULL, finished_at = NULL, version = version + 1,
    attempts = 0, losses = 0, bugs = 0, deferrals = 0, deferred_since = NULL,
    sent_at = NULL, not_before = statement_timestamp(), due_at = statement_timestamp()
FROM letter WHERE o.id = letter.operation_id AND o.state = 'dead'
"""


def replay(letter: int, *, by: int, reason: str = "") -> bool:
    """Send a dead operation round again, with all its chances. False: it is not open.

    Those that wait behind it go on waiting, for its end: it was accepted before them.
    """
    return _changed(_REPLAY, {"letter": letter, "by": by, "reason": reason}) == 1


_DISCARD = f"""
WITH letter AS (
    UPDATE operations_deadletter AS l
    SET state = CASE WHEN o.effects_began AND %(compensation)s::text IS NOT NULL
            THEN 'discarding' ELSE 'discarded' END,
        decided_by_id = %(by)s, decided_at = statement_timestamp(), reason = %(reason)s
    FROM operations_operation AS o
    WHERE l.id = %(letter)s AND l.state = 'open' AND o.id = l.operation_id AND o.state = 'dead'
    RETURNING l.operation_id, l.state, o.resource, o.request_id, o.traceparent
), freed AS (
    UPDATE operations_operation AS o
    SET state = 'cancelled', version = version + 1, finished_at = statement_timestamp()
    FROM letter WHERE o.id = letter.operation_id AND o.state = 'dead'
      AND letter.state = 'discarded'
    RETURNING o.id, o.resource
), record AS (
    UPDATE operations_idempotencyrecord AS r SET expires_at = statement_timestamp() + %(retention)s
    FROM freed WHERE r.operation_id = freed.id
), compensation AS (
    INSERT INTO operations_operation
        (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
         due_at, effects_began, attempts, losses, bugs, deferrals, request_id, traceparent,
         created_at, version)
    SELECT %(id)s, NULL, %(compensation)s, jsonb_build_object('operation', operation_id), 1,
        resource, 'pending', '', statement_timestamp(), statement_timestamp(), false, 0, 0, 0, 0,
        request_id, traceparent, statement_timestamp(), 1
    FROM letter WHERE state = 'discarding'
), next AS MATERIALIZED (
    SELECT head.id, freed.id AS freed_id FROM freed CROSS JOIN LATERAL (
        SELECT id FROM operations_operation
        WHERE resource = freed.resource AND resource <> '' AND state = 'pending'
        ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS head
), made_due AS (
    UPDATE operations_operation AS o
    SET due_at = GREATEST(o.not_before, statement_timestamp()), deferred_since = NULL
    FROM next WHERE o.id = next.id AND o.kind = ANY(%(waiting)s::text[])
      AND NOT {_behind_dead("o", but="next.freed_id")}
)
SELECT state FROM letter
"""


def discard(
    letter: int,
    *,
    compensation: str | None,
    compensation_id: uuid.UUID,
    retention: timedelta,
    by: int,
    reason: str,
) -> str | None:
    """Give a dead operation up. What it did outside is undone first, by an operation.

    Who waited behind it is due then, at once; or, woken by the end of that operation, later.

    :param compensation: the kind that undoes this kind's effects, if there is one
    :returns: ``discarded``, ``discarding``, or None: the letter is not open
    """
    row = _one(
        _DISCARD,
        {
            "letter": letter,
            "compensation": compensation,
            "id": compensation_id,
            "retention": retention,
            "by": by,
            "reason": reason,
            "waiting": registry.waiting(),
        },
    )
    return None if row is None else str(row["state"])


_FINISH_DISCARD = """
WITH letter AS (
    UPDATE operations_deadletter SET state = 'discarded'
    WHERE operation_id = %(id)s AND state = 'discarding'
    RETURNING operation_id
), record AS (
    UPDATE operations_idempotencyrecord AS r
    SET expires_at = statement_timestamp() + %(retention)s
    FROM letter WHERE r.operation_id = letter.operation_id
)
UPDATE operations_operation AS o
SET state = 'cancelled', version = version + 1, finished_at = statement_timestamp()
FROM letter WHERE o.id = letter.operation_id AND o.state = 'dead'
"""


def finish_discard(id: uuid.UUID, *, retention: timedelta) -> None:
    """Close an operation whose effects are undone; in the transaction that undid the last.

    Who waited behind it is woken by the settling that follows in the same transaction.

    :raises ClaimLost: it is not being discarded
    """
    if not _changed(_FINISH_DISCARD, {"id": id, "retention": retention}):
        raise ClaimLost(id)


_CLOSE_LETTER = """
UPDATE operations_deadletter
SET state = %(state)s, decided_by_id = %(by)s, decided_at = statement_timestamp(),
    reason = %(reason)s,
    message_id = CASE WHEN %(state)s = 'replayed' THEN message_id || ':' || id ELSE message_id END
WHERE id = %(letter)s AND state = 'open' AND operation_id IS NULL
"""


def close_letter(letter: int, state: LetterState, *, by: int, reason: str) -> bool:
    """Decide on a letter that belongs to no operation. False: it is not open, or does.

    One that is replayed may be written again, when what it tells of is still there.
    """
    parameters = {"letter": letter, "state": state, "by": by, "reason": reason}
    return _changed(_CLOSE_LETTER, parameters) == 1


# --- dispatch ------------------------------------------------------------------------

# Nobody waits for one before it that itself must wait for a person; for one that is to be
# tried again only later, only who keeps the order.
_TAKE_DUE = f"""
WITH due AS (
    SELECT o.id FROM operations_operation AS o LEFT JOIN LATERAL (
        {_first_dead("o.resource", "cardinality(%(waiting)s::text[]) > 0")}
    ) AS dead ON true
    WHERE o.state = 'pending' AND o.sent_at IS NULL AND o.due_at <= statement_timestamp()
      AND o.not_before <= statement_timestamp() AND o.kind = ANY(%(kinds)s)
      AND NOT EXISTS (SELECT 1 FROM unnest(%(owners)s::int[], %(theirs)s::text[])
                          AS crowding(owner_id, kind)
                      WHERE crowding.owner_id = o.owner_id AND crowding.kind = o.kind)
      AND (o.resource = '' OR NOT EXISTS (
        SELECT 1 FROM operations_operation AS other
        WHERE other.resource = o.resource AND other.id <> o.id
          AND (other.state = 'running' OR (other.state = 'pending' AND other.seq < o.seq
               AND (other.not_before <= statement_timestamp() OR o.kind = ANY(%(fifo)s::text[]))
               AND NOT (COALESCE(dead.seq < other.seq, false)
                        AND other.kind = ANY(%(waiting)s::text[]))))))
      AND NOT (COALESCE(dead.seq < o.seq, false) AND o.kind = ANY(%(waiting)s::text[]))
    ORDER BY o.due_at LIMIT %(limit)s
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE operations_operation AS o
SET sent_at = statement_timestamp(),
    due_at = statement_timestamp() + %(evidence_age)s * interval '1 second'
FROM due WHERE o.id = due.id
RETURNING o.id, o.kind, o.sent_at
"""


def take_due(
    kinds: Sequence[str], limit: int, *, passing_over: Sequence[Crowding] = ()
) -> list[Envelope]:
    """Mark as sent what is owed to the broker: heads of free resources, rows without one.

    :param passing_over: whose turn it is not, see :func:`crowding`
    """
    return _envelopes(
        _TAKE_DUE,
        {
            "kinds": list(kinds),
            "limit": limit,
            "owners": [one.owner for one in passing_over],
            "theirs": [one.kind for one in passing_over],
            **_waking(),
        },
    )


# Not if somebody has decided meanwhile, and so has made the row due. (Compared in a way that no
# index answers: it would find all that are due at the same time.)
_PUT_OFF_DUE = f"""
WITH due AS MATERIALIZED (
    SELECT o.id, o.due_at FROM operations_operation AS o
    WHERE o.state = 'pending' AND o.sent_at IS NULL AND o.due_at <= statement_timestamp()
      AND {_behind_dead("o")}
    LIMIT %(limit)s
), free AS MATERIALIZED (
    SELECT one.id FROM due CROSS JOIN LATERAL (
        SELECT o.id FROM operations_operation AS o
        WHERE o.id = due.id AND o.state = 'pending' AND o.sent_at IS NULL
          AND o.due_at IS NOT DISTINCT FROM due.due_at
        FOR UPDATE SKIP LOCKED
    ) AS one
)
UPDATE operations_operation AS o
SET due_at = statement_timestamp() + {_PUT_OFF.format(row="o")}, deferred_since = NULL
WHERE o.id = ANY(ARRAY(SELECT id FROM free))
"""


def put_off(limit: int) -> int:
    """Take what waits behind a dead one out of the dispatcher's sight for a while.

    It may wait for days. And that counts as no time of waiting for its resource.
    """
    waiting = registry.waiting()
    if not waiting:
        return 0
    return _changed(
        _PUT_OFF_DUE,
        {
            "waiting": waiting,
            "limit": limit,
            "delay": settings.SEKALI_PARK_DELAY,
            "longest": LONGEST_PUT_OFF,
        },
    )


_CROWDING = """
SELECT owner_id AS owner, kind FROM operations_operation
WHERE state = 'pending' AND sent_at IS NOT NULL AND owner_id IS NOT NULL
GROUP BY owner_id, kind HAVING count(*) >= %(window)s
"""


def crowding() -> list[Crowding]:
    """Owners who have as many messages of a kind in the broker as one owner may."""
    window = {"window": settings.SEKALI_OWNER_WINDOW}
    return [Crowding(row["owner"], row["kind"]) for row in _all(_CROWDING, window)]


_TAKE_LOST = """
WITH lost AS (
    SELECT id FROM operations_operation
    WHERE state = 'pending' AND sent_at <= %(sent_before)s AND due_at <= statement_timestamp()
      AND kind = ANY(%(kinds)s)
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE operations_operation AS o
SET sent_at = statement_timestamp(),
    due_at = statement_timestamp() + %(interval)s * interval '1 second'
FROM lost WHERE o.id = lost.id
RETURNING o.id, o.kind, o.sent_at
"""


def take_lost(kinds: Sequence[str], sent_before: datetime, limit: int) -> list[Envelope]:
    """Mark as sent again what was sent before a time by which its message must have come."""
    return _envelopes(
        _TAKE_LOST,
        {
            "kinds": list(kinds),
            "sent_before": sent_before,
            "limit": limit,
            "interval": settings.SEKALI_RESEND_INTERVAL,
        },
    )


_RECALL = """
WITH sent AS (
    SELECT id FROM operations_operation
    WHERE state = 'pending' AND kind = %(kind)s AND sent_at IS NOT NULL
    LIMIT %(limit)s FOR UPDATE
)
UPDATE operations_operation AS o
SET sent_at = NULL, due_at = GREATEST(o.not_before, statement_timestamp())
FROM sent WHERE o.id = sent.id
"""


def recall(kind: str, limit: int) -> int:
    """Owe a kind's waiting operations a publish again, since its controls have changed."""
    return _changed(_RECALL, {"kind": kind, "limit": limit})


_FORGET_SENT = """
WITH sent AS (
    SELECT id FROM operations_operation
    WHERE state = 'pending' AND sent_at <= %(before)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE operations_operation AS o SET sent_at = NULL, due_at = statement_timestamp()
FROM sent WHERE o.id = sent.id
"""


def forget_sent(before: datetime, limit: int) -> int:
    """Owe every waiting operation a publish again: the broker has forgotten them."""
    return _changed(_FORGET_SENT, {"before": before, "limit": limit})


# --- one cursor ----------------------------------------------------------------------


def _all(sql: str, parameters: dict[str, Any], *, prepared: bool = False) -> list[dict[str, Any]]:
    """
    :param prepared: for what is run for every operation, see :func:`preparing`
    """
    with preparing() if prepared else connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        # Read once: psycopg builds it anew each time, for more than the rows cost.
        description = cursor.description
        assert description is not None
        names = [column.name for column in description]
        return [_decoded(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _one(sql: str, parameters: dict[str, Any], *, prepared: bool = False) -> dict[str, Any] | None:
    rows = _all(sql, parameters, prepared=prepared)
    return rows[0] if rows else None


def _changed(sql: str, parameters: dict[str, Any], *, prepared: bool = False) -> int:
    with preparing() if prepared else connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def _envelopes(sql: str, parameters: dict[str, Any]) -> list[Envelope]:
    return _enveloped(_all(sql, parameters))


def _enveloped(rows: Iterable[dict[str, Any]]) -> list[Envelope]:
    return [Envelope(row["id"], row["kind"], row["sent_at"]) for row in rows]


#: Django has psycopg leave jsonb as text, for its own field to decode.
_JSON_COLUMNS = frozenset({"payload", "precondition", "result", "error"})


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    for name in _JSON_COLUMNS & row.keys():
        if isinstance(row[name], str):
            row[name] = json.loads(row[name])
    return row
