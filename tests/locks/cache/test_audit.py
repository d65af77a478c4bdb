"""The sampling audit, the counters, and the commands."""

import time

import pytest

from locks.cache import counts, records
from locks.cache.audit import audit
from locks.cache.breaker import breaker_for
from locks.cache.metrics import totals
from locks.cache.store import Store
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf, in_thread, make_due


@pytest.mark.parametrize("versioned", [False, True])
def test_a_value_that_is_wrong_is_found_counted_and_dropped(
    source: None, wire: Proxy, versioned: bool
) -> None:
    """E8: somebody changed the source without a word."""
    shelf = Shelf(versioned=versioned)
    for name in ("a", "b"):
        shelf.put(name, 1)
        shelf.get(name)
    shelf.put("a", 2)
    found = audit()
    assert found.compared == {shelf.entry.name: 2}
    assert found.mismatched == {shelf.entry.name: 1}
    assert [shelf.get("a"), shelf.get("b")] == [2, 1]
    found = audit()
    assert (found.compared, found.mismatched) == ({shelf.entry.name: 2}, {})
    counted = totals()[shelf.entry.name]
    assert (counted["audited"], counted["mismatched"]) == (4, 1)


def test_what_is_invalidated_meanwhile_is_no_mismatch(shelf: Shelf) -> None:
    """E8: between a commit and its delete a value is always old."""
    shelf.put(value=1)
    shelf.get()
    shelf.put(value=2)
    auditing = in_thread(audit)
    time.sleep(0.3)
    shelf.entry.invalidate(name="a")
    found = auditing.result(5)
    assert found.compared == {shelf.entry.name: 1}
    assert found.mismatched == {}


def test_it_passes_over_what_is_no_value(shelf: Shelf, cache_server: ValkeyServer) -> None:
    """E8: other keys of the server, tokens, entries that are not known here."""
    shelf.put()
    shelf.get()
    late = shelf.held_up(lambda: shelf.get("b"))
    with cache_server.client() as client:
        client.set("sekali:limit:read:1", 5)
        for name in ("unknown@1", f"{shelf.entry.name}@7"):
            client.set(f"sekali:1:{name}:a", f"{int(time.time() * 1000) + 9000} -\n1")
    shelf.gate.set()
    late.result(5)
    assert audit().compared == {shelf.entry.name: 1}


def test_without_a_cache_there_is_nothing_to_compare(shelf: Shelf, wire: Proxy) -> None:
    """E8"""
    wire.black_hole()
    assert audit().compared == {}


def test_reads_loads_and_invalidations_are_counted(shelf: Shelf, wire: Proxy) -> None:
    """E8: by entry, also of what came before the cache was away."""
    shelf.put()
    for _ in range(3):
        shelf.get()
    shelf.count_up()
    make_due()
    records.apply_due()
    shelf.put("b")
    shelf.get("b")
    wire.black_hole()
    shelf.get()
    shelf.count_up()
    wire.heal()
    wait_until(lambda: not breaker_for(wire.url).is_open)
    counted = totals()[shelf.entry.name]
    expected: dict[counts.Name, int] = {
        "hit": 2,
        "miss": 2,
        "read": 4,
        "load": 3,
        "filled": 2,
        "unavailable": 1,
        "invalidated": 1,
        "invalidation_failed": 1,
        "reapplied": 1,
    }
    assert {name: counted.get(name, 0) for name in expected} == expected
    assert counted["read_us"] > 0
    assert counted["load_us"] > 0


def test_counters_reach_the_server_with_later_calls(shelf: Shelf, wire: Proxy) -> None:
    """E8: without a round trip of their own."""
    shelf.put()
    shelf.get()
    time.sleep(counts.INTERVAL)
    wire.requests.clear()
    shelf.get()
    assert len(wire.requests) == 1
    assert Store().totals()[f"{shelf.entry.name}:load"] == 1
