"""Loading what will be asked for most before it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locks.cache.entry import CacheEntry
from locks.cache.reading import fresh

#: Values loaded in one go.
BATCH = 100


@dataclass(frozen=True)
class Warmed:
    """What came of it. ``hot`` values there are, ``before`` were cached, ``cached`` are now.

    ``nothing`` of them turned out not to exist, which this entry does not keep.
    """

    hot: int = 0
    before: int = 0
    cached: int = 0
    nothing: int = 0

    @property
    def is_complete(self) -> bool:
        """False: the cache refuses to store, or something was invalidated meanwhile."""
        return self.cached >= self.hot - self.nothing


def warm(entry: CacheEntry[Any]) -> Warmed:
    """Load the hot keys of an entry that are not cached.

    :raises CacheAway: nothing is loaded for a cache that does not answer
    :raises Overloaded: too many loads are under way
    """
    assert entry.hot is not None
    hot = {entry.key(**dimensions): dimensions for dimensions in entry.hot()}
    keys = list(hot)
    before = cached = nothing = 0
    for first in range(0, len(keys), BATCH):
        some = keys[first : first + BATCH]
        before += len(fresh(entry, some))
        nothing += _load(entry, [hot[key] for key in some])
        cached += len(fresh(entry, some))
    return Warmed(len(keys), before, cached, nothing)


def _load(entry: CacheEntry[Any], many: Sequence[Mapping[str, Any]]) -> int:
    values = entry.get_many(many)
    return 0 if entry.negative else sum(value is None for value in values)
