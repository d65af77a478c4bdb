"""System checks: settings that would break a promise stop the process at start-up (B3)."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection

from operations import registry
from operations.broker.selection import broker_class

#: Of these checks.
TAG = "operations"
#: The checks of the platform. A worker or dispatcher runs no others: those of Django look at
#: URLs and admin, which such a process has not even loaded.
TAGS = (TAG, "locks")


@register(TAG)
def check_order_of_timeouts(**_: Any) -> list[CheckMessage]:
    """Each time-out must be below the one that would otherwise cut into it."""
    longest_kind = max(registry.kinds(), key=lambda kind: kind.time_limit, default=None)
    hardest = max(settings.SEKALI_TIME_LIMIT, longest_kind.time_limit if longest_kind else 0)
    rules = [
        (
            "operations.E001",
            (
                "The visibility timeout must be above every time_limit, or the broker hands out "
                "work that is still running."
            ),
            ("time_limit", hardest),
            ("SEKALI_VISIBILITY_TIMEOUT", settings.SEKALI_VISIBILITY_TIMEOUT),
        ),
        (
            "operations.E008",
            (
                "RabbitMQ's consumer_timeout must be above every time_limit, or it closes the "
                "channel of a worker that is still at work."
            ),
            ("time_limit", hardest),
            ("SEKALI_CONSUMER_TIMEOUT", settings.SEKALI_CONSUMER_TIMEOUT),
        ),
        (
            "operations.E002",
            "The soft time limit must be below the hard one, or no handler can react.",
            ("SEKALI_SOFT_TIME_LIMIT", settings.SEKALI_SOFT_TIME_LIMIT),
            ("SEKALI_TIME_LIMIT", settings.SEKALI_TIME_LIMIT),
        ),
        (
            "operations.E003",
            (
                "A stopped worker must lose its transaction before its claim is rescued, or it "
                "holds rows against its successor."
            ),
            ("DATABASE_IDLE_IN_TRANSACTION_TIMEOUT", settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT),
            ("SEKALI_CLAIM_TTL", settings.SEKALI_CLAIM_TTL),
        ),
        (
            "operations.E004",
            "Waiting for a row lock must end before a transaction is ended for idling.",
            ("DATABASE_LOCK_TIMEOUT", settings.DATABASE_LOCK_TIMEOUT),
            ("DATABASE_IDLE_IN_TRANSACTION_TIMEOUT", settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT),
        ),
        (
            "operations.E005",
            (
                "A call to the lease server must end within a quarter of the lease's TTL, or a "
                "heartbeat comes too late."
            ),
            ("4 x LOCKS_TIMEOUT", 4 * settings.LOCKS_TIMEOUT),
            ("SEKALI_LEASE_TTL", settings.SEKALI_LEASE_TTL),
        ),
        (
            "operations.E006",
            "What was sent again must get time to arrive before it counts as lost again.",
            ("SEKALI_EVIDENCE_AGE", settings.SEKALI_EVIDENCE_AGE),
            ("SEKALI_RESEND_INTERVAL", settings.SEKALI_RESEND_INTERVAL),
        ),
    ]
    problems: list[CheckMessage] = [
        Error(f"{low_name} ({low:g} s) is not below {high_name} ({high:g} s).", hint=hint, id=id)
        for id, hint, (low_name, low), (high_name, high) in rules
        if not low < high
    ]
    if settings.SEKALI_LEASE_TTL < settings.SEKALI_CLAIM_TTL:
        problems.append(
            Error(
                "SEKALI_LEASE_TTL is below SEKALI_CLAIM_TTL.",
                hint="A lease must not end before the claim that it protects.",
                id="operations.E007",
            )
        )
    return problems


@register(TAG)
def check_broker(**_: Any) -> list[CheckMessage]:
    """The broker's address must be one that is understood."""
    try:
        broker_class(settings.BROKER_URL)
    except ImproperlyConfigured as error:
        return [Error(str(error), id="operations.E010")]
    return []


@register(TAG)
def check_isolation(**_: Any) -> list[CheckMessage]:
    """Only the API may run stricter than READ COMMITTED: the other statements rely on it."""
    levels = ("read committed", "repeatable read", "serializable")
    if settings.DATABASE_ISOLATION not in levels:
        return [
            Error(f"DATABASE_ISOLATION is not one of {', '.join(levels)}.", id="operations.E011")
        ]
    if levels[0] != settings.DATABASE_ISOLATION and settings.SEKALI_ROLE != "api":
        return [
            Error(
                "DATABASE_ISOLATION may be stricter than 'read committed' for the API only.",
                hint="Workers and dispatcher must see each other's commits at once.",
                id="operations.E012",
            )
        ]
    return []


#: What a session must be told, beside the setting that says so.
_SESSION = {
    "lock_timeout": "DATABASE_LOCK_TIMEOUT",
    "idle_in_transaction_session_timeout": "DATABASE_IDLE_IN_TRANSACTION_TIMEOUT",
}


@register(TAG)
def check_session(**_: Any) -> list[CheckMessage]:
    """A session must have the limits that the settings tell: a pooler may have dropped them.

    Whether the database can be reached is not checked.
    """
    try:
        found = _session_settings()
    except DatabaseError:
        return []
    hint = "Behind a pooler give it to the role: ALTER ROLE ... SET (docs/pooler.md)."
    problems: list[CheckMessage] = []
    for name, setting in _SESSION.items():
        limit, actual = getattr(settings, setting), int(found[name]) / 1000
        if not 0 < actual <= limit:
            told = f"{actual:g} s" if actual else "off"
            message = f"{name} is {told} in the database's sessions, not {limit:g} s at most."
            problems.append(Error(message, hint=hint, id="operations.E013"))
    isolation = found["default_transaction_isolation"]
    if isolation != settings.DATABASE_ISOLATION:
        message = f"Sessions run at {isolation!r}, not at {settings.DATABASE_ISOLATION!r}."
        problems.append(Error(message, hint=hint, id="operations.E014"))
    return problems


def _session_settings() -> dict[str, str]:
    """Of a session of its own: checks run in processes that fork later."""
    asked = connection.copy()
    try:
        with asked.cursor() as cursor:
            names = [*_SESSION, "default_transaction_isolation"]
            cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [names])
            return dict(cursor.fetchall())
    finally:
        asked.close()
