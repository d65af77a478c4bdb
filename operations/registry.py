"""The kinds of operation this process knows.

A kind is declared once, in ``operations.py`` of a domain app, with :func:`operation`.
Options that cannot work fail there and then, with the line that is wrong in the
traceback. After start-up the registry only answers questions.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers

from locks.cache.target import Target

if TYPE_CHECKING:
    from operations.claim import Claim

Payload = dict[str, Any]
Handler = Callable[["Claim", Payload], Any]
Backoff = Sequence[float] | float
T = TypeVar("T")

#: Filled in by accept, beside the fields of the payload.
_RESOURCE_FIELDS = frozenset({"owner", "id"})
COMPENSATION_SUFFIX = ".compensate"
#: Bytes of a resource's name: it is also the key of a lease and of two indexes.
RESOURCE_LIMIT = 255


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of operation and its options. See :func:`operation` for what they mean."""

    name: str
    handler: Handler
    serializer: type[serializers.Serializer[Any]]
    resource: str = ""
    queue: str
    atomic: bool = True
    order: Literal["any", "fifo"] = "any"
    behind_dead: Literal["pass", "wait"] = "pass"
    dependencies: tuple[str, ...] = ()
    autoretry_for: tuple[type[BaseException], ...] = ()
    max_retries: int
    retry_backoff: Backoff
    retry_jitter: bool = True
    soft_time_limit: float
    time_limit: float
    key_retention: timedelta
    payload_revision: int = 1
    incidental: frozenset[str] = field(default_factory=frozenset)
    personal: frozenset[str] = field(default_factory=frozenset)
    critical: bool = False
    precondition: Callable[[Claim], bool] | None = None
    invalidates: tuple[Target, ...] = ()
    compensate: Handler | None = None
    #: The kind whose dead operations this one undoes.
    compensates: str = ""

    def resource_of(self, *, id: object, owner: object, payload: Payload) -> str:
        """The name of what must not be worked on twice at once, for one operation.

        At most ``RESOURCE_LIMIT`` bytes: a longer name ends in the digest of the whole.
        """
        name = self.resource.format(**{**payload, "id": id, "owner": owner})
        whole = name.encode()
        if len(whole) <= RESOURCE_LIMIT:
            return name
        digest = hashlib.sha256(whole).hexdigest()
        return whole[: RESOURCE_LIMIT - len(digest) - 1].decode(errors="ignore") + "~" + digest

    @property
    def fifo(self) -> bool:
        return self.order == "fifo"


_kinds: dict[str, Kind] = {}


class UnknownKind(LookupError):
    """No such kind is registered in this process (perhaps in a newer one)."""


def operation(
    name: str,
    *,
    serializer: type[serializers.Serializer[Any]],
    resource: str = "",
    atomic: bool = True,
    order: Literal["any", "fifo"] = "any",
    behind_dead: Literal["pass", "wait"] = "pass",
    dependencies: Sequence[str] = (),
    autoretry_for: Sequence[type[BaseException]] = (),
    max_retries: int | None = None,
    retry_backoff: Backoff | None = None,
    retry_jitter: bool = True,
    soft_time_limit: float | None = None,
    time_limit: float | None = None,
    queue: str | None = None,
    key_retention: timedelta | None = None,
    payload_revision: int = 1,
    incidental: Sequence[str] = (),
    personal: Sequence[str] = (),
    critical: bool = False,
    precondition: Callable[[Claim], bool] | None = None,
    invalidates: Sequence[Target] = (),
    compensate: Handler | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of a kind of operation.

    The function stays callable as it is. It gets the :class:`~operations.claim.Claim`
    and the validated payload.

    :param name: also the Celery task name; stored in every row, so never renamed
    :param serializer: validates input, and the stored payload again before each attempt
    :param resource: template over ``{owner}``, ``{id}`` and payload fields, naming what
        must not be worked on twice at once; empty: nothing
    :param atomic: the handler has local effects only and runs inside one fenced
        transaction. Otherwise it opens ``claim.fenced()`` itself, around its calls outside
    :param order: ``fifo`` keeps operations of one resource in the order of acceptance
    :param behind_dead: with ``fifo``: what those do that were accepted after one that is dead.
        ``pass`` lets them go on; ``wait`` keeps them until a person has decided, by a replay
        that goes first or by a discard. Whatever kind the dead one is of
    :param dependencies: names of what is called outside
    :param autoretry_for: exceptions to retry with backoff, as if something outside failed
    :param max_retries: retries after the first attempt; by default one for each step of
        the schedule
    :param retry_backoff: delays in seconds, or a factor that doubles
    :param soft_time_limit: seconds until ``SoftTimeLimitExceeded`` is raised in the handler
    :param time_limit: seconds until the worker's child is killed
    :param queue: by default the name of the kind
    :param key_retention: how long a key is remembered after the end
    :param payload_revision: raise it when the serializer changes incompatibly
    :param incidental: fields that do not make a request another request
    :param personal: fields whose values are hidden in logs, attempts and dead letters
    :param critical: accepted however much is waiting
    :param precondition: is what the client promised (``claim.precondition``) still true?
        Asked in the fenced transaction that makes the first effect
    :param invalidates: what its effects change in the cache, as ``ENTRY.on(owner="{owner}")``
        over the same fields as ``resource``; after each of its fenced transactions. What is
        not known that early the handler invalidates itself, inside the transaction
    :param compensate: undoes the outside effects of an operation that an operator gives up
    :raises ImproperlyConfigured: an option cannot work
    """
    schedule = settings.SEKALI_RETRY_BACKOFF if retry_backoff is None else retry_backoff
    steps = 4 if isinstance(schedule, int | float) else len(schedule)

    def register(handler: Handler) -> Handler:
        kind = Kind(
            name=name,
            handler=handler,
            serializer=serializer,
            resource=resource,
            queue=queue or name,
            atomic=atomic,
            order=order,
            behind_dead=behind_dead,
            dependencies=tuple(dependencies),
            autoretry_for=tuple(autoretry_for),
            max_retries=steps if max_retries is None else max_retries,
            retry_backoff=schedule,
            retry_jitter=retry_jitter,
            soft_time_limit=_given(soft_time_limit, settings.SEKALI_SOFT_TIME_LIMIT),
            time_limit=_given(time_limit, settings.SEKALI_TIME_LIMIT),
            key_retention=_given(key_retention, timedelta(seconds=settings.SEKALI_KEY_RETENTION)),
            payload_revision=payload_revision,
            incidental=frozenset(incidental),
            personal=frozenset(personal),
            critical=critical,
            precondition=precondition,
            invalidates=tuple(invalidates),
            compensate=compensate,
        )
        _add(kind)
        if compensate is not None:
            _add(_compensation_of(kind, compensate))
        return handler

    return register


def get(name: str) -> Kind:
    """The kind of that name.

    :raises UnknownKind: it is not registered here
    """
    try:
        return _kinds[name]
    except KeyError:
        raise UnknownKind(name) from None


def may_be_a_kind(name: str) -> bool:
    """Could some version of the code know a kind of this name?"""
    return 0 < len(name) <= 100 and name.isascii() and name.isprintable() and " " not in name


def kinds() -> Iterator[Kind]:
    """All kinds, in the order of their declaration."""
    return iter(tuple(_kinds.values()))


def fifo() -> list[str]:
    """The names of the kinds whose operations keep their order."""
    return [kind.name for kind in _kinds.values() if kind.fifo]


def waiting() -> list[str]:
    """The names of the kinds whose operations wait behind a dead one."""
    return [kind.name for kind in _kinds.values() if kind.behind_dead == "wait"]


def queues() -> list[str]:
    """The queues of all kinds, each once."""
    return list(dict.fromkeys(kind.queue for kind in _kinds.values()))


class CompensationPayload(serializers.Serializer[Any]):
    operation = serializers.UUIDField()


def _compensation_of(kind: Kind, compensate: Handler) -> Kind:
    # It runs on the resource of the operation it undoes, which discard copies over.
    return Kind(
        name=kind.name + COMPENSATION_SUFFIX,
        handler=compensate,
        serializer=CompensationPayload,
        queue=kind.queue,
        atomic=False,
        dependencies=kind.dependencies,
        autoretry_for=kind.autoretry_for,
        max_retries=kind.max_retries,
        retry_backoff=kind.retry_backoff,
        retry_jitter=kind.retry_jitter,
        soft_time_limit=kind.soft_time_limit,
        time_limit=kind.time_limit,
        key_retention=kind.key_retention,
        compensates=kind.name,
    )


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _add(kind: Kind) -> None:
    problem = _problem_with(kind)
    if problem:
        raise ImproperlyConfigured(f"Operation kind {kind.name!r}: {problem}")
    _kinds[kind.name] = kind
    for target in kind.invalidates:
        target.declared_by(kind.name)


def _problem_with(kind: Kind) -> str | None:  # noqa: C901, PLR0912  (a list of cases)
    if kind.name in _kinds:
        return "is declared twice."
    if not may_be_a_kind(kind.name):
        return "a name is 1 to 100 visible ASCII characters."
    if not (0 < kind.soft_time_limit < kind.time_limit):
        return f"soft_time_limit {kind.soft_time_limit} must be below time_limit {kind.time_limit}."
    if kind.max_retries < 0:
        return "max_retries cannot be negative."
    if not isinstance(kind.retry_backoff, int | float) and (
        not kind.retry_backoff or min(kind.retry_backoff) <= 0
    ):
        return "retry_backoff must be delays above 0 s, or a factor."
    if isinstance(kind.retry_backoff, int | float) and kind.retry_backoff <= 0:
        return "a retry_backoff factor must be above 0."
    if kind.order not in ("any", "fifo"):
        return f"order {kind.order!r} is neither 'any' nor 'fifo'."
    if kind.behind_dead not in ("pass", "wait"):
        return f"behind_dead {kind.behind_dead!r} is neither 'pass' nor 'wait'."
    if kind.behind_dead == "wait" and not kind.fifo:
        return "behind_dead='wait' needs order='fifo'."
    if kind.fifo and not kind.resource:
        return "order='fifo' needs a resource."
    if kind.key_retention <= timedelta(0):
        return "key_retention must be positive."
    fields = kind.serializer().fields.keys()
    unknown = [
        name
        for _, name, _, _ in string.Formatter().parse(kind.resource)
        if name is not None and name not in _RESOURCE_FIELDS | set(fields)
    ]
    if unknown:
        return f"resource names {unknown[0]!r}, which is neither owner, id nor a payload field."
    holes = {hole for target in kind.invalidates for hole in target.fields}
    unknown = sorted(holes - _RESOURCE_FIELDS - set(fields))
    if unknown:
        return f"invalidates names {unknown[0]!r}, which is neither owner, id nor a payload field."
    for option, names in (("incidental", kind.incidental), ("personal", kind.personal)):
        missing = sorted(names - set(fields))
        if missing:
            return f"{option} names {missing[0]!r}, which the serializer does not have."
    return None
