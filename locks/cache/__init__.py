"""A cache that cannot lie for long.

Values are declared (:class:`CacheEntry`), read through the cache, and invalidated after
the commit that changes what they were loaded from. Whatever was read before an
invalidation cannot be stored after it, and an invalidation that was lost is made up for
within seconds. Without the cache everything is right all the same, only slower.
"""

from locks.cache.entry import CacheEntry, entries
from locks.cache.errors import Overloaded
from locks.cache.invalidation import invalidate
from locks.cache.target import Target

__all__ = ["CacheEntry", "Overloaded", "Target", "entries", "invalidate"]
