"""From an exception of a handler to the ending of its attempt."""

import traceback

from billiard.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import InterfaceError, OperationalError

from locks.cache import CacheEntry, Overloaded
from operations.backoff import delay_before_retry
from operations.claim import Claim
from operations.database import DatabaseUnavailable, is_read_only
from operations.endings import Dead, Defer, Ending, Failure, Refusal, Retry
from operations.errors import BadPayload, DependencyError, NotReady, Refused
from operations.outcomes import Category
from operations.redaction import redact
from operations.signature import innermost_own_frame, signature

#: What is kept of a message and of a traceback, in characters.
MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 20_000

_DATABASES = (OperationalError, InterfaceError, DatabaseUnavailable)

# A read through the cache passes it on, whatever old value it could answer with.
CacheEntry.never_hides = (*CacheEntry.never_hides, SoftTimeLimitExceeded)


def ending_of(error: BaseException, claim: Claim) -> Ending:
    """What the table in the guarantees page says of this exception."""
    kind = claim.kind
    match error:
        case Refused() if not claim.effects_began:
            return Refusal(error.code, redact(error.detail))
        case NotReady():
            return defer_or_give_up(
                claim, error.delay, error.why, began=True, dependency=error.dependency
            )
        case Overloaded():
            return defer_or_give_up(claim, settings.SEKALI_PARK_DELAY, str(error), began=True)
        case BadPayload():
            return Dead(failure(error, Category.DATA))
        case DependencyError():
            why = failure(error, Category.DEPENDENCY, error.dependency)
            return _retry_or_give_up(claim, why, at_least=error.retry_after)
        case SoftTimeLimitExceeded():
            # Of a dependency, when it came in the middle of a call.
            name = getattr(error, "dependency", "")
            return _retry_or_give_up(claim, failure(error, Category.TIMEOUT, name))
        case _ if isinstance(error, kind.autoretry_for):
            name = kind.dependencies[0] if len(kind.dependencies) == 1 else ""
            return _retry_or_give_up(claim, failure(error, Category.DEPENDENCY, name))
        case _ if isinstance(error, _DATABASES) or is_read_only(error):
            # A connection cut, a deadlock, a lock that did not come: the database's, not ours.
            return _retry_or_give_up(claim, failure(error, Category.DEPENDENCY, "database"))
        case _:
            why = failure(error, Category.BUG)
            if claim.row.bugs >= settings.SEKALI_MAX_BUG_RETRIES:
                return Dead(why)
            return _retry_or_give_up(claim, why)


def failure(error: BaseException, category: Category, dependency: str = "") -> Failure:
    """The error in the form in which it is stored."""
    error_type = type(error).__qualname__
    message = storable(redact(str(error)))[:MESSAGE_LIMIT]
    frame = innermost_own_frame(error.__traceback__)
    return Failure(
        category=category,
        error_type=error_type[:200],
        message=message,
        traceback=storable(redact("".join(traceback.format_exception(error))))[-TRACEBACK_LIMIT:],
        dependency=dependency[:100],
        signature=signature(category, error_type, message, frame),
    )


def defer_or_give_up(
    claim: Claim, delay: float, why: str, *, began: bool, dependency: str = ""
) -> Defer | Dead:
    """Wait, unless the operation has been waiting beyond its bound already.

    :param dependency: what it waits for; empty: for its resource
    """
    since, now = claim.row.deferred_since, claim.row.started_at
    if since is not None and (now - since).total_seconds() > settings.SEKALI_DEFER_LIMIT:
        message = f"Deferred since {since:%Y-%m-%d %H:%M:%S} UTC. {why}".strip()
        category = Category.DEPENDENCY if dependency else Category.LOCK
        return Dead(
            Failure(
                category=category,
                error_type="DeferredTooLong",
                message=storable(message)[:MESSAGE_LIMIT],
                dependency=dependency[:100],
                signature=signature(category, "DeferredTooLong", why, claim.kind.name),
            )
        )
    return Defer(delay, why, began)


def storable(text: str) -> str:
    """Text as PostgreSQL can hold it: without NUL, without halves of surrogate pairs."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _retry_or_give_up(claim: Claim, why: Failure, at_least: float = 0) -> Retry | Dead:
    kind = claim.kind
    if claim.attempt > kind.max_retries:
        return Dead(why)
    delay = delay_before_retry(kind.retry_backoff, claim.attempt, jitter=kind.retry_jitter)
    return Retry(why, max(delay, at_least))
