"""The declaration of one kind of cached value."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured

from locks.cache.invalidation import invalidate
from locks.cache.keys import Keys
from locks.cache.reading import Wanted, read
from locks.cache.target import Target

T = TypeVar("T")

_entries: dict[str, "CacheEntry[Any]"] = {}


class CacheEntry(Generic[T]):
    """What is cached, from where, for how long, and what may be told meanwhile.

    Declared once, in ``caches.py`` of an app::

        PRODUCT = CacheEntry(
            "product", key="{sku}", load=load_product, ttl=60, stale=30, tolerates=90,
            source="inventory_product", fallback="the database",
        )
        PRODUCT.get(sku="sku-1")

    :param name: small letters, digits and dashes; stands in keys and metrics
    :param key: all that the value depends on, as ``{owner}:{id}``: exactly the parameters
        of ``load``, which must be annotated ``int``, ``str`` or ``UUID``
    :param load: reads the value from its source, best in one statement. Values are what
        the cache's serializer keeps (JSON); None means that there is nothing
    :param load_many: the same for many at once, in their order; None: one after the other
    :param ttl: seconds for which a value is fresh, counted from the begin of its load and
        shortened at random by up to ``jitter`` (a fraction)
    :param stale: seconds beyond that for which it may still be served while one process
        loads it anew, or while loading fails
    :param negative: seconds for which "there is nothing" is kept; 0: it is not
    :param tolerates: the longest time in seconds for which a reader may be told what was
        changed without an invalidation: a promise that ``ttl`` and ``stale`` must keep
    :param wait: seconds that a reader waits for another's load before it loads for itself
    :param lease: seconds that a load may take; a later one stores nothing
    :param versioned: all values together can be invalidated, in one step
    :param revision: raise it when the form of the values changes
    :param source: the source of truth, for people
    :param fallback: what happens without the cache, for people
    :param invalidated_by: events that invalidate it beside the kinds of operation that
        declare so, for people
    :param hot: dimensions of what ``manage.py warm_cache`` loads
    :raises ImproperlyConfigured: the parameters do not fit together
    """

    #: Exceptions of a load for which no old value is served instead, e.g. a time limit's.
    never_hides: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(
        self,
        name: str,
        *,
        key: str,
        load: Callable[..., T | None],
        ttl: float,
        tolerates: float,
        source: str,
        fallback: str = "read from the source, a few at a time",
        load_many: Callable[[Sequence[Mapping[str, Any]]], Sequence[T | None]] | None = None,
        stale: float = 0,
        jitter: float = 0.1,
        negative: float = 0,
        wait: float = 1,
        lease: float = 5,
        versioned: bool = False,
        revision: int = 1,
        invalidated_by: Sequence[str] = (),
        hot: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.name = name
        self.key_template = key
        self.ttl = ttl
        self.stale = stale
        self.jitter = jitter
        self.negative = negative
        self.tolerates = tolerates
        self.wait = wait
        self.lease = lease
        self.source = source
        self.fallback = fallback
        self.invalidated_by = list(invalidated_by)
        self.hot = hot
        #: The module, for people.
        self.declared_in = load.__module__
        self.keys = Keys(name, revision, key, load)
        self.version_key = self.keys.prefix if versioned else ""
        self._load = load
        self._load_many = load_many
        if problem := self._problem():
            raise ImproperlyConfigured(f"Cache entry {name!r}: {problem}")
        _entries[name] = self

    # --- reading ------------------------------------------------------------------------

    def get(self, **dimensions: Any) -> T | None:
        """The value; None when there is nothing. One round trip when it is cached.

        Inside a transaction it is read from the source.

        :raises Overloaded: it is not cached, and too many loads are under way
        """
        wanted = self.keys.converted(dimensions)
        key = self.keys.rendered(wanted)
        return cast("T | None", read(self, {key: wanted})[key])

    def get_many(self, many: Iterable[Mapping[str, Any]]) -> list[T | None]:
        """The values of many, in their order. One round trip when all are cached.

        :raises Overloaded: as :meth:`get`
        """
        wanted: Wanted = {}
        order = []
        for dimensions in many:
            converted = self.keys.converted(dimensions)
            key = self.keys.rendered(converted)
            wanted[key] = converted
            order.append(key)
        found = read(self, wanted) if wanted else {}
        return [found[key] for key in order]

    # --- invalidating -------------------------------------------------------------------

    def key(self, **dimensions: Any) -> str:
        """The key of a value, for :func:`locks.cache.invalidate`."""
        return self.keys.rendered(self.keys.converted(dimensions))

    def every_key(self) -> str:
        """What stands for the keys of all values, for :func:`locks.cache.invalidate`.

        :raises TypeError: the entry is not versioned
        """
        if not self.version_key:
            raise TypeError(f"Cache entry {self.name!r} is not versioned.")
        return self.version_key

    def invalidate(self, **dimensions: Any) -> None:
        """Drop a value when the present transaction commits; see :func:`invalidate`."""
        invalidate(self.key(**dimensions))

    def invalidate_all(self) -> None:
        """Drop all values when the present transaction commits, in one step.

        :raises TypeError: the entry is not versioned
        """
        invalidate(self.every_key())

    def on(self, **templates: str) -> Target:
        """What a kind of operation invalidates, as templates over its payload."""
        return Target(self.name, self.keys, templates, self.invalidated_by)

    # --- for the rest of this package ---------------------------------------------------

    def load_from_source(self, many: Sequence[Mapping[str, Any]]) -> Sequence[T | None]:
        """The values of many, in their order."""
        if self._load_many is not None and len(many) > 1:
            return self._load_many(many)
        return [self._load(**dimensions) for dimensions in many]

    def ttl_of(self, value: T | None) -> float:
        """For how many seconds a value is fresh; 0: it is not to be stored."""
        ttl = self.negative if value is None else self.ttl
        return ttl * random.uniform(1 - self.jitter, 1)  # noqa: S311

    @property
    def longest_ttl(self) -> float:
        """Seconds for which any value can be fresh."""
        return max(self.ttl, self.negative)

    @property
    def version_ttl(self) -> float:
        """Seconds for which the entry's version outlives its last use: longer than every
        value."""
        return 2 * (self.ttl + self.stale + self.negative + self.lease)

    def _problem(self) -> str | None:
        if self.name in _entries:
            return "is declared twice."
        if self.ttl <= 0 or self.lease <= 0:
            return "ttl and lease must be above 0 seconds."
        if min(self.stale, self.negative, self.wait) < 0:
            return "stale, negative and wait cannot be below 0 seconds."
        if not 0 <= self.jitter < 1:
            return "jitter is a fraction, from 0 to below 1."
        if max(self.ttl + self.stale, self.negative) > self.tolerates:
            return f"ttl and stale exceed the {self.tolerates} s that are tolerated."
        return None

    def __repr__(self) -> str:
        return f"<CacheEntry {self.name}>"


def entries() -> Iterator[CacheEntry[Any]]:
    """All entries, by name."""
    return iter([_entries[name] for name in sorted(_entries)])


def entry_of(key: str) -> CacheEntry[Any] | None:
    """The entry that a key belongs to, if it is one that is known here."""
    entry = _entries.get(key.partition("@")[0])
    return entry if entry is not None and entry.keys.parsed(key) is not None else None
