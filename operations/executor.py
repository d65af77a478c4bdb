"""One attempt, from the message to the ending: claim → lease → run → settle → release."""

import enum
import logging
import os
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from billiard.common import terminate_handler_fired
from django.conf import settings
from django.db import IntegrityError
from psycopg import errors as pg

from locks import Lease, LeaseUnavailable
from operations import dependencies, logs, redaction, registry, verbs
from operations.broker import get_broker
from operations.claim import Claim
from operations.claimed_row import ClaimedRow
from operations.classify import defer_or_give_up, ending_of
from operations.crashpoints import reach
from operations.database import RowLocked, persistently
from operations.endings import Dead, Defer, Done, Ending, Failure, Refusal, Retry
from operations.errors import ClaimLost
from operations.heartbeat import Heartbeat
from operations.interruptible import begin_attempt, interruptible
from operations.models.operation import ONE_RUNNING_PER_RESOURCE
from operations.outcomes import Category
from operations.payload import validated
from operations.registry import Kind
from operations.signature import signature
from operations.verbs import Envelope

log = logging.getLogger(__name__)
T = TypeVar("T")


class Outcome(enum.Enum):
    """What came of a delivery."""

    DONE = "done"
    REFUSED = "refused"
    RETRY = "retry"
    DEFERRED = "deferred"
    DEAD = "dead"
    #: Not waiting, or not yet: nothing to do for this message.
    DUPLICATE = "duplicate"
    #: Its resource is in work; parked.
    BUSY = "busy"
    #: The claim was lost on the way; whoever has it now will settle.
    LOST = "lost"
    #: There is no such operation, or it is of another kind: the message is wrong.
    UNKNOWN = "unknown"


_OUTCOMES: dict[type[Ending], Outcome] = {
    Done: Outcome.DONE,
    Refusal: Outcome.REFUSED,
    Retry: Outcome.RETRY,
    Defer: Outcome.DEFERRED,
    Dead: Outcome.DEAD,
}

_heartbeat = Heartbeat()


def execute(
    operation_id: uuid.UUID, kind_name: str, *, process: str, sent_at: datetime | None = None
) -> Outcome:
    """Make one attempt at an operation, if it is there to be had.

    :param process: names this worker process in the claim, for its death notice
    :param sent_at: when the message that led here was sent
    :raises UnknownKind: this process does not know the kind
    """
    kind = registry.get(kind_name)
    begin_attempt()
    with logs.context(operation_id=str(operation_id), kind=kind_name):
        row = _claim(operation_id, kind, f"{process}#{secrets.token_hex(4)}", sent_at)
        if row is None:
            return _park(operation_id, kind)
        reach("claim.made")
        claim = Claim(row, kind)
        personal = (row.payload.get(name) for name in kind.personal)
        with (
            redaction.hiding(personal),
            logs.context(
                request_id=row.request_id,
                idempotency_key=row.idempotency_key or "",
                job_id=str(operation_id),
                resource=row.resource,
                attempt=row.attempts,
            ),
        ):
            return _attempt(claim)


def _attempt(claim: Claim) -> Outcome:
    started = time.monotonic()
    lease = _lease_for(claim)
    try:
        ending = _leave_to_newer(claim) or _hold(claim, lease) or _run(claim)
        outcome = _OUTCOMES[type(ending)]
    except ClaimLost:
        outcome = _leave(claim)
    finally:
        _release(_heartbeat.forget(claim) or lease)
    _publish(claim.woken)
    reach("attempt.over")
    log.info("attempt %s in %.0f ms", outcome.value, (time.monotonic() - started) * 1000)
    return outcome


def _leave(claim: Claim) -> Outcome:
    """Whoever has the claim now will settle; unless only the lease went to other code."""
    if not claim.evicted:
        return Outcome.LOST
    why = f"Somebody else took the lease on {claim.resource}."
    try:
        ending = defer_or_give_up(claim, settings.SEKALI_PARK_DELAY, why, began=True)
        return _OUTCOMES[type(_settle(claim, ending))]
    except ClaimLost:
        return Outcome.LOST


def _leave_to_newer(claim: Claim) -> Ending | None:
    """Two versions run side by side during a deploy; the payload may be for the other."""
    revision, known = claim.row.payload_revision, claim.kind.payload_revision
    if revision <= known:
        return None
    why = f"The payload has revision {revision}; this worker knows {known}."
    log.warning("deferred: %s", why)
    return _settle(claim, defer_or_give_up(claim, settings.SEKALI_PARK_DELAY, why, began=False))


# --- claim ---------------------------------------------------------------------------


def _claim(
    id: uuid.UUID, kind: Kind, claimed_by: str, sent_at: datetime | None
) -> ClaimedRow | None:
    def once() -> ClaimedRow | None:
        return verbs.claim(id, kind.name, claimed_by=claimed_by, fifo=kind.fifo, sent_at=sent_at)

    def again() -> ClaimedRow | None:
        # The lost answer may have been "yes".
        return verbs.claim_made(id, claimed_by=claimed_by) or once()

    try:
        return _persistently(once, again)
    except IntegrityError as error:
        if _constraint_of(error) != ONE_RUNNING_PER_RESOURCE:
            raise
        return None
    except RowLocked:
        return None


def _park(id: uuid.UUID, kind: Kind) -> Outcome:
    """Not claimed: a duplicate is dropped, a row whose resource is busy leaves the queue."""
    too_long = _persistently(lambda: verbs.park(id, kind.name))
    if too_long is None:
        exists = _persistently(lambda: verbs.exists(id, kind.name))
        return Outcome.DUPLICATE if exists else Outcome.UNKNOWN
    if too_long:
        message = "The resource stayed busy for too long."
        failure = Failure(
            Category.LOCK,
            "ResourceBusy",
            message,
            signature=signature(Category.LOCK, "ResourceBusy", message, kind.name),
        )
        _publish(_persistently(lambda: verbs.give_up_waiting(id, failure)))
        return Outcome.DEAD
    return Outcome.BUSY


def set_aside(id: uuid.UUID, kind_name: str) -> Outcome:
    """A message of a kind that this process does not know: a newer version may know it.

    Its operation is sent again after a while, for as long as an operation may be deferred.
    """
    if not registry.may_be_a_kind(kind_name):
        return Outcome.UNKNOWN
    too_long = _persistently(lambda: verbs.set_aside(id, kind_name))
    if too_long is None:
        return Outcome.UNKNOWN
    if too_long:
        message = f"No worker knows the kind {kind_name!r}."
        failure = Failure(
            Category.UNROUTABLE,
            "UnknownKind",
            message,
            signature=signature(Category.UNROUTABLE, "UnknownKind", message, ""),
        )
        _publish(_persistently(lambda: verbs.give_up_waiting(id, failure)))
        return Outcome.DEAD
    return Outcome.BUSY


def revoke(id: uuid.UUID) -> bool:
    """Remote control has revoked the task. False: it may have had effects, and goes on."""
    woken = _persistently(lambda: verbs.revoke(id))
    if woken is None:
        log.warning("%s was revoked, but may have had effects: it goes on.", id)
        return False
    log.warning("%s was revoked before it began; it is cancelled.", id)
    _publish(woken)
    return True


# --- lease ---------------------------------------------------------------------------


def _lease_for(claim: Claim) -> Lease | None:
    if not claim.resource:
        return None
    return Lease(
        claim.resource, ttl=settings.SEKALI_LEASE_TTL, owner=lease_owner(claim.id, claim.epoch)
    )


def lease_owner(id: uuid.UUID, epoch: int) -> str:
    """The owner token of an attempt's lease, so that a rescue can release it."""
    return f"{id}:{epoch}"


def _hold(claim: Claim, lease: Lease | None) -> Ending | None:
    """Keep other code that locks the same thing out. Not to be had: try again later."""
    why = ""
    if lease is not None:
        try:
            if not lease.acquire():
                why = f"Somebody else holds the lease on {claim.resource}."
        except LeaseUnavailable as error:
            why = f"The lease server does not answer: {error}"
    if why:
        log.warning("deferred: %s", why)
        return _settle(claim, defer_or_give_up(claim, settings.SEKALI_PARK_DELAY, why, began=False))
    for dependency in dependencies.registered(claim.kind.dependencies):
        # Before anything has begun, so that it can still be cancelled.
        if refusal := dependency.refusal(_waited(claim)):
            log.warning("deferred: %s", refusal.why)
            ending = defer_or_give_up(
                claim, refusal.delay, refusal.why, began=False, dependency=dependency.name
            )
            return _settle(claim, ending)
    reach("lease.acquired")
    _heartbeat.watch(claim, lease)
    return None


def _release(lease: Lease | None) -> None:
    if lease is None:
        return
    try:
        lease.release()
    except LeaseUnavailable as error:
        log.warning("The lease will end by itself: %s", error)


def _waited(claim: Claim) -> float:
    """Seconds since the operation was put off first, without an attempt since."""
    since = claim.row.deferred_since
    return 0 if since is None else (claim.row.started_at - since).total_seconds()


# --- run and settle ------------------------------------------------------------------


def _run(claim: Claim) -> Ending:
    try:
        payload = validated(claim.kind, claim.row.payload, claim.row.payload_revision)
        claim.payload = payload
        if claim.kind.atomic:
            return _run_atomic(claim, payload)
        with (
            dependencies.calling(retry=claim.attempt > 1, waited=_waited(claim)),
            interruptible(),
        ):
            claim.kind.handler(claim, payload)
        if claim.ended is None:
            raise RuntimeError("The handler returned without claim.finish() or claim.refuse().")
        return claim.ended
    except ClaimLost:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and terminate_handler_fired():
            raise  # not the handler's: this process is being ended, and others tell why
        if os.getpid() != claim.pid:
            raise ClaimLost(claim.id) from error
        if claim.ended is not None:
            # Committed already: what goes wrong afterwards cannot change it.
            log.exception("The handler failed after it had finished.")
            return claim.ended
        ending = ending_of(error, claim)
        _log_failure(ending, error)
        return _settle(claim, ending)


def _run_atomic(claim: Claim, payload: registry.Payload) -> Ending:
    with claim.fenced():
        with interruptible():
            result = claim.kind.handler(claim, payload)
        claim.finish(result)
    assert claim.ended is not None
    return claim.ended


def _settle(claim: Claim, ending: Ending) -> Ending:
    def once() -> list[Envelope]:
        if isinstance(ending, Defer):
            return verbs.defer(claim.row, ending)
        return verbs.settle(claim.row, ending, retention=claim.kind.key_retention)

    # Tried again after a lost answer it finds nothing to settle, and that is right:
    # the attempt is over either way, and only a wake may be missed, which `due_at` mends.
    claim.woken = _persistently(once)
    reach("settle.committed")
    return ending


def _log_failure(ending: Ending, error: BaseException) -> None:
    if isinstance(ending, Dead) or (
        isinstance(ending, Retry) and ending.failure.category == Category.BUG
    ):
        log.error("attempt failed: %s", error, exc_info=error)
    else:
        log.warning("attempt failed: %s: %s", type(error).__name__, error)


def _publish(woken: list[Envelope]) -> None:
    for envelope in woken:
        get_broker().try_publish(envelope)


def _persistently(once: Callable[[], T], again: Callable[[], T] | None = None) -> T:
    """A database that restarts is waited for as long as a claim lasts."""
    return persistently(once, again=again, patience=settings.SEKALI_CLAIM_TTL)


def _constraint_of(error: IntegrityError) -> str:
    cause = error.__cause__
    return (cause.diag.constraint_name or "") if isinstance(cause, pg.Error) else ""
