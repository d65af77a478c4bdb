"""Comparing what is cached with what is true, on a sample.

Nothing should ever be found: it would mean that something changes what is cached without
invalidating it, or that an invalidation was lost for good.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from locks.cache import counts
from locks.cache.entry import CacheEntry, entry_of
from locks.cache.errors import CacheAway
from locks.cache.reading import fresh
from locks.cache.store import Store

log = logging.getLogger(__name__)

#: Seconds after which a difference is looked at again: between a commit and the delete
#: that follows it there always is one.
GRACE = 1.0


@dataclass(frozen=True)
class Audit:
    """By name of entry: how many values were compared, and how many were wrong."""

    compared: dict[str, int]
    mismatched: dict[str, int]


@dataclass(frozen=True)
class _Suspect:
    entry: CacheEntry[Any]
    key: str
    raw: bytes


def audit(sample: int = 100) -> Audit:
    """Compare values picked at random; drop those that are wrong.

    :param sample: how many keys of the cache server are picked; not all hold values
    """
    compared: Counter[str] = Counter()
    mismatched: Counter[str] = Counter()
    try:
        suspects = []
        for key in sorted(set(Store().random_keys(sample))):
            if (entry := entry_of(key)) and (raw := fresh(entry, [key]).get(key)):
                compared[entry.name] += 1
                if _differs(entry, key, raw):
                    suspects.append(_Suspect(entry, key, raw))
        if suspects:
            time.sleep(GRACE)
        for suspect in suspects:
            if _is_wrong(suspect):
                mismatched[suspect.entry.name] += 1
    except CacheAway:
        log.warning("The cache is away; nothing more to compare.")
    for name, number in compared.items():
        counts.add(name, {"audited": number, "mismatched": mismatched[name]})
    return Audit(dict(compared), dict(mismatched))


def _is_wrong(suspect: _Suspect) -> bool:
    """Whether the very same value still stands and still differs; if so it is dropped."""
    entry, key = suspect.entry, suspect.key
    if fresh(entry, [key]).get(key) != suspect.raw or not _differs(entry, key, suspect.raw):
        return False
    log.error("What was cached under %s was not true; it is dropped.", key)
    Store().drop([key])
    return True


def _differs(entry: CacheEntry[Any], key: str, raw: bytes) -> bool:
    dimensions = entry.keys.parsed(key)
    assert dimensions is not None
    (truth,) = entry.load_from_source([dimensions])
    store = Store()
    try:
        told = store.decoded(raw.partition(b"\n")[2])
    except Exception:  # noqa: BLE001  (as for a reader, who takes it for nothing)
        return True
    return bool(told != store.decoded(store.encoded(truth)))
