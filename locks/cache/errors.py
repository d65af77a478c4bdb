"""What can go wrong with a cached read. Cache trouble alone never does: reads go on without."""


class CacheAway(Exception):
    """The cache server did not answer, refused, or is being left alone for a while.

    Never leaves ``locks``.
    """


class Overloaded(Exception):
    """Too many loads from the source are under way, and none ended in time. Try again later."""
