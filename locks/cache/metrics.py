"""The numbers of requirement E8, for an exporter."""

from collections import Counter, defaultdict
from contextlib import suppress

from locks.cache import counts
from locks.cache.errors import CacheAway
from locks.cache.store import Store


def totals() -> dict[str, dict[str, int]]:
    """By entry, every counter of ``locks/cache/counts.py``: those of all processes and what
    this one has not sent yet.

    They start again at zero when the cache was emptied, and are this process's alone while
    it is away. Together with :func:`locks.cache.records.pending` that is all there is to
    tell.
    """
    summed = Counter(counts.pending())
    with suppress(CacheAway):
        summed.update(Store().totals())
    by_entry: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for field, amount in summed.items():
        entry, _, name = field.partition(":")
        by_entry[entry][name] = amount
    return dict(by_entry)
