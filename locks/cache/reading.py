"""One read, from the look into the cache to the load from the source.

Why what is returned is never older than an invalidation that was acknowledged before the
read began:

- a value found in the cache was there during the read, and an invalidation deletes it;
- a value loaded here was loaded during the read; and from the source, also what its loader
  reads of other entries, so that ages do not add up;
- a value loaded by another is only ever taken from the cache, so its filling was accepted,
  and it is accepted only while the token stands that was set before the load and that
  every invalidation deletes.
"""

import logging
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import connections

from locks.cache import counts, loads
from locks.cache.envelope import Envelope, opened
from locks.cache.errors import CacheAway, Overloaded
from locks.cache.keys import LONGEST
from locks.cache.store import Fill, Loaded, Mine, Store, Taken
from locks.fences import database

if TYPE_CHECKING:
    from locks.cache.entry import CacheEntry

log = logging.getLogger(__name__)

#: Converted dimensions by key.
Wanted = dict[str, dict[str, Any]]
Found = dict[str, Any]

#: Seconds between two looks of one who waits: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05


def read(entry: "CacheEntry[Any]", wanted: Wanted) -> Found:
    """The values of all wanted keys.

    :raises Overloaded: too many loads are under way
    """
    store = Store()
    if in_transaction() or loads.is_loading():
        counts.add(entry.name, {"bypassed": len(wanted)})
        return _load(entry, store, wanted)
    if max(map(len, wanted)) > LONGEST:
        with loads.place():
            return _load(entry, store, wanted)
    began = time.perf_counter()
    try:
        raws, version = store.read(list(wanted), entry.version_key)
    except CacheAway:
        return _do_without(entry, store, wanted)
    found: Found = {}
    past: dict[str, Envelope] = {}
    for key, raw in zip(wanted, raws, strict=True):
        if envelope := opened(raw, version):
            if envelope.is_fresh(entry.longest_ttl):
                _take(store, envelope, key, found)
            elif envelope.may_be_served(entry.stale):
                past[key] = envelope
    took = int((time.perf_counter() - began) * 1_000_000)
    counts.add(entry.name, {"read": 1, "read_us": took, "hit": len(found)})
    if len(found) < len(wanted):
        left = {key: wanted[key] for key in wanted if key not in found}
        found |= _fetch(entry, store, left, past)
    return found


def fresh(entry: "CacheEntry[Any]", keys: Sequence[str]) -> dict[str, bytes]:
    """What stands in the cache for these keys, as far as it is fresh, by key.

    :raises CacheAway: the server does not answer
    """
    raws, version = Store().read(keys, entry.version_key)
    found: dict[str, bytes] = {}
    for key, raw in zip(keys, raws, strict=True):
        envelope = opened(raw, version)
        if raw is not None and envelope is not None and envelope.is_fresh(entry.longest_ttl):
            found[key] = raw
    return found


def in_transaction() -> bool:
    """Whether this thread's reads must see what its open transaction sees.

    That may be more than has been committed, and with a stricter isolation it is less than
    what others have invalidated; so such a read neither uses the cache nor fills it.
    """
    connection = connections[database()]
    return connection.in_atomic_block or (
        connection.connection is not None and not connection.autocommit
    )


def _fetch(
    entry: "CacheEntry[Any]", store: Store, wanted: Wanted, past: Mapping[str, Envelope]
) -> Found:
    """The values that were not there, or not fresh: loaded here, or waited for."""
    found: Found = {}
    left = dict(wanted)
    token = secrets.token_hex(16)
    began = time.monotonic()
    pause = _FIRST_PAUSE
    try:
        while left:
            asked = time.monotonic()
            mine = _ask(entry, store, left, token, found)
            if mine:
                own = {key: left.pop(key) for key in mine}
                found |= _load_and_fill(entry, store, own, mine, token, asked, past)
            elif left:
                if time.monotonic() - began >= entry.wait:
                    break
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(_LONGEST_PAUSE, pause * 1.5)
    except CacheAway:
        return found | _do_without(entry, store, left)
    if pause > _FIRST_PAUSE:
        waited = int((time.monotonic() - began) * 1_000_000)
        counts.add(entry.name, {"waited": 1, "waited_us": waited})
    if left:
        counts.add(entry.name, {"miss": len(left)})
        with loads.shared_place(store, entry.lease):
            found |= _load(entry, store, left)
    return found


def _ask(
    entry: "CacheEntry[Any]", store: Store, left: Wanted, token: str, found: Found
) -> dict[str, bytes]:
    """Take what is there by now out of ``left``; the versions of what is ours to load."""
    answers = store.begin(
        list(left),
        token,
        entry.lease,
        ttl=entry.longest_ttl,
        stale=entry.stale,
        version_key=entry.version_key,
        new_version=secrets.token_hex(8),
        version_ttl=entry.version_ttl,
    )
    mine: dict[str, bytes] = {}
    for key, answer in zip(tuple(left), answers, strict=True):
        match answer:
            case Mine(version):
                mine[key] = version
            case Loaded(raw):
                _take_raw(store, raw, key, found)
                counts.add(entry.name, {"miss": 1})
            case Taken(raw) if raw:
                _take_raw(store, raw, key, found)
                counts.add(entry.name, {"stale": 1})
        if key in found:
            del left[key]
    return mine


def _load_and_fill(
    entry: "CacheEntry[Any]",
    store: Store,
    own: Wanted,
    versions: Mapping[str, bytes],
    token: str,
    asked: float,
    past: Mapping[str, Envelope],
) -> Found:
    """Load what is ours to load, and store it unless it was invalidated meanwhile.

    :param asked: the monotonic time before which the tokens were not there
    """
    found: Found = {}
    try:
        with loads.place():
            found = _load(entry, store, own)
    except BaseException as error:
        _abandon(store, own, token)
        if isinstance(error, Exception) and not isinstance(error, entry.never_hides):
            for key in own:
                if key in past:
                    _take(store, past[key], key, found)
        if len(found) < len(own):
            raise
        log.warning("Serving old values of %s: %s: %s", entry.name, type(error).__name__, error)
        counts.add(entry.name, {"stale": len(own)})
        return found
    counts.add(entry.name, {"miss": len(own)})
    # The time counts from before the load: the value may have been read at its very begin.
    elapsed = time.monotonic() - asked
    fills, unfilled = [], []
    for key, value in found.items():
        ttl = entry.ttl_of(value) - elapsed
        if ttl > 0:
            stale = 0 if value is None else entry.stale
            fills.append(Fill(key, versions[key], store.encoded(value), ttl, stale))
        else:
            unfilled.append(key)
    if unfilled:
        _abandon(store, unfilled, token)
    if fills:
        _fill(entry, store, fills, token)
    return found


def _fill(entry: "CacheEntry[Any]", store: Store, fills: list[Fill], token: str) -> None:
    try:
        stored = sum(store.fill(fills, token, entry.version_key))
    except CacheAway:
        stored = 0
    counts.add(entry.name, {"filled": stored, "rejected": len(fills) - stored})


def _abandon(store: Store, keys: "Wanted | list[str]", token: str) -> None:
    with suppress(CacheAway):  # then the tokens end by themselves
        store.abandon(list(keys), token)


def _do_without(entry: "CacheEntry[Any]", store: Store, wanted: Wanted) -> Found:
    counts.add(entry.name, {"unavailable": len(wanted)})
    with loads.place():
        return _load(entry, store, wanted)


def _load(entry: "CacheEntry[Any]", store: Store, wanted: Wanted) -> Found:
    """From the source, in the form in which they come out of the cache."""
    began = time.perf_counter()
    try:
        values = entry.load_from_source(list(wanted.values()))
    except BaseException as error:
        name: counts.Name = "overloaded" if isinstance(error, Overloaded) else "load_error"
        counts.add(entry.name, {name: 1})
        raise
    took = int((time.perf_counter() - began) * 1_000_000)
    counts.add(entry.name, {"load": 1, "load_us": took})
    return {
        key: store.decoded(store.encoded(value)) for key, value in zip(wanted, values, strict=True)
    }


def _take_raw(store: Store, raw: bytes, key: str, found: Found) -> None:
    """Take what ``begin.lua`` has found good."""
    envelope = opened(raw, raw.partition(b"\n")[0].partition(b" ")[2])
    if envelope is not None:
        _take(store, envelope, key, found)


def _take(store: Store, envelope: Envelope, key: str, found: Found) -> None:
    """Decode a value; one that cannot be decoded is dropped, and counts as not there."""
    try:
        found[key] = store.decoded(envelope.body)
    except Exception:  # whatever the serializer makes of what is none of its own
        log.exception("What is cached under %s cannot be decoded.", key)
        with suppress(CacheAway):
            store.drop([key])
