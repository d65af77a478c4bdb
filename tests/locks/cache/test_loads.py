"""Loads that raise, are slow, or are too many."""

import time
import uuid
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from locks.cache import CacheEntry, Overloaded
from locks.cache.metrics import totals
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf, in_thread


class Broken(Exception):
    pass


def past_its_ttl(shelf: Shelf) -> None:
    """Have the value be past its TTL, but not yet gone."""
    assert shelf.entry.stale
    shelf.get()
    time.sleep(shelf.entry.ttl)


@pytest.fixture
def lenient(source: None, wire: Proxy) -> Shelf:
    """May serve old values."""
    shelf = Shelf(ttl=0.1, stale=60, jitter=0)
    shelf.put(value=1)
    return shelf


def test_a_load_that_raises_does_not_stop_the_old_value(lenient: Shelf) -> None:
    """E5: nor is the old value made to look fresh."""
    past_its_ttl(lenient)
    lenient.put(value=2)
    lenient.error = Broken()
    assert [lenient.get() for _ in range(3)] == [1, 1, 1]
    lenient.error = None
    assert lenient.get() == 2


def test_some_errors_are_not_hidden_behind_an_old_value(lenient: Shelf) -> None:
    """B4: such as a time limit of the work that reads."""

    class TimeLimit(Exception):
        pass

    past_its_ttl(lenient)
    lenient.error = TimeLimit()
    before = CacheEntry.never_hides
    CacheEntry.never_hides = (*before, TimeLimit)
    try:
        with pytest.raises(TimeLimit):
            lenient.get()
    finally:
        CacheEntry.never_hides = before


def test_without_an_old_value_the_error_is_the_readers(shelf: Shelf) -> None:
    """E5: the next one tries for itself, without waiting."""
    shelf.error = Broken()
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(Broken):
            shelf.get()
        assert time.monotonic() - began < shelf.entry.wait
    shelf.error = None
    shelf.put()
    assert shelf.get() == 1


def test_while_one_revalidates_the_others_are_told_the_old_value(lenient: Shelf) -> None:
    """E5"""
    past_its_ttl(lenient)
    lenient.put(value=2)
    late = lenient.held_up()
    assert [lenient.get() for _ in range(3)] == [1, 1, 1]
    lenient.gate.set()
    assert late.result(5) == 2
    assert len(lenient.loads) == 2


def test_an_invalidation_takes_the_old_value_away_too(lenient: Shelf) -> None:
    """E3: stale copy and token go together."""
    past_its_ttl(lenient)
    late = lenient.held_up()
    lenient.count_up()
    lenient.gate.set()
    assert lenient.get() == 2
    assert late.result(5) in (1, 2)
    assert lenient.get() == 2


def test_a_load_slower_than_the_ttl_is_told_but_not_stored(
    source: None, wire: Proxy, cache_server: ValkeyServer
) -> None:
    """E5: it would be older than the TTL allows."""
    shelf = Shelf(ttl=0.1, jitter=0)
    shelf.put()
    late = shelf.held_up()
    time.sleep(0.15)
    shelf.gate.set()
    assert late.result(5) == 1
    with cache_server.client() as client:
        assert client.keys("*shelf*") == []


def test_a_load_slower_than_its_lease_stores_nothing_and_another_takes_over(
    source: None, wire: Proxy
) -> None:
    """E5"""
    shelf = Shelf(lease=0.1)
    shelf.put(value=1)
    late = shelf.held_up()
    time.sleep(0.15)
    shelf.put(value=2)
    shelf.gate.set()
    assert late.result(5) == 1
    assert shelf.get() == 2
    assert shelf.get() == 2
    assert len(shelf.loads) == 2


def test_a_reader_waits_for_a_load_and_is_told_what_it_stored(shelf: Shelf) -> None:
    """E5"""
    shelf.put()
    late = shelf.held_up()
    waiting = in_thread(shelf.get)
    time.sleep(0.05)
    assert not waiting.done()
    shelf.gate.set()
    assert (late.result(5), waiting.result(5)) == (1, 1)
    assert shelf.loads == ["a"]


def test_one_who_waits_is_not_told_what_was_rejected(shelf: Shelf) -> None:
    """E3 E5: waiters share a value only if it could be stored."""
    shelf.put(value=1)
    late = shelf.held_up()
    waiting = in_thread(shelf.get)
    shelf.count_up()
    after = in_thread(shelf.get)
    shelf.gate.set()
    assert late.result(5) == 1
    assert waiting.result(5) in (1, 2)
    assert after.result(5) == 2


def test_too_many_loads_are_refused_after_a_bounded_time(shelf: Shelf, settings: Settings) -> None:
    """E7: rather than trample the database."""
    settings.CACHE_LOADS = 2
    settings.CACHE_LOAD_WAIT = 0.2
    for name in ("a", "b", "c"):
        shelf.put(name)
    held: list[Future[Any]] = [shelf.held_up(partial(shelf.get, name)) for name in "ab"]
    began = time.monotonic()
    with pytest.raises(Overloaded):
        shelf.get("c")
    assert 0.2 <= time.monotonic() - began < 2
    shelf.gate.set()
    assert [future.result(5) for future in held] == [1, 1]
    assert shelf.get("c") == 1


def test_one_who_has_an_old_value_is_not_refused(lenient: Shelf, settings: Settings) -> None:
    """E7"""
    settings.CACHE_LOADS = 1
    settings.CACHE_LOAD_WAIT = 0.05
    past_its_ttl(lenient)
    busy = Shelf()
    held = busy.held_up()
    assert lenient.get() == 1
    busy.gate.set()
    held.result(5)


def test_a_load_may_read_another_entry(source: None, wire: Proxy, settings: Settings) -> None:
    """E5: it does not wait for the place that it holds itself."""
    settings.CACHE_LOADS = 1
    inner = Shelf()
    inner.put(value=3)

    def load(name: str) -> int:
        return 10 * (inner.get(name) or 0)

    outer: CacheEntry[int] = CacheEntry(
        "nesting", key="{name}", load=load, ttl=9, tolerates=9, source="another entry"
    )
    assert outer.get(name="a") == 30


def test_what_a_load_reads_of_another_entry_is_not_old(source: None, wire: Proxy) -> None:
    """E1: the ages of the two would add up, beyond what either tolerates."""
    inner = Shelf(stale=60)
    inner.put(value=1)
    assert inner.get() == 1

    def load(name: str) -> list[int | None]:
        return [inner.get(name), *inner.entry.get_many([{"name": name}])]

    outer: CacheEntry[list[int | None]] = CacheEntry(
        "nesting-new", key="{name}", load=load, ttl=9, tolerates=9, source="another entry"
    )
    inner.put(value=2)
    assert outer.get(name="a") == [2, 2]
    assert inner.get() == 1, "nobody has invalidated it"


@pytest.mark.parametrize("commits", [True, False])
def test_a_load_that_invalidates_its_own_key_is_told_and_not_stored(
    source: None, wire: Proxy, commits: bool
) -> None:
    """E3: it ends, and its error is seen in the counters."""

    def load(name: str) -> int:
        if commits:
            with transaction.atomic():
                selfish.invalidate(name=name)
        else:
            selfish.invalidate(name=name)
        return 7

    selfish: CacheEntry[int] = CacheEntry(
        f"selfish-{commits}".lower(), key="{name}", load=load, ttl=9, tolerates=9, source="itself"
    )
    assert [selfish.get(name="a") for _ in range(3)] == [7, 7, 7]
    counted = totals()[selfish.name]
    assert counted["rejected"] == counted["load"] == 3


@pytest.mark.parametrize(
    "value", [None, False, 0, 0.0, "", [], {}, "5", 5, 10**40, "é\ud800", "\0"]
)
def test_a_value_is_told_alike_whether_it_was_cached_or_not(
    source: None, wire: Proxy, value: Any
) -> None:
    """E1 E7: also what is nearly nothing."""
    loads = []

    def load(name: str) -> Any:
        loads.append(name)
        return value

    entry: CacheEntry[Any] = CacheEntry(
        f"values-{uuid.uuid4().hex}",
        key="{name}",
        load=load,
        ttl=9,
        negative=9,
        tolerates=9,
        source="x",
    )
    told = [entry.get(name="a"), entry.get(name="a"), *entry.get_many([{"name": "a"}])]
    assert told == [value] * 3
    assert {type(one) for one in told} == {type(value)}
    assert loads == ["a"]


def test_without_a_cache_no_more_loads_than_places_go_on(
    shelf: Shelf, wire: Proxy, settings: Settings
) -> None:
    """E7: the bound holds without the server's help."""
    settings.CACHE_LOADS = 3
    settings.CACHE_LOAD_WAIT = 30
    settings.CACHE_REST = 60
    shelf.put()
    wire.black_hole()
    assert shelf.get() == 1
    shelf.gate.clear()
    shelf.loads.clear()
    readers = [in_thread(shelf.get) for _ in range(12)]
    wait_until(lambda: len(shelf.loads) == 3)
    time.sleep(0.1)
    assert len(shelf.loads) == 3
    shelf.gate.set()
    assert [reader.result(30) for reader in readers] == [1] * 12
