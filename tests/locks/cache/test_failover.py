"""The server changes its role, refuses writes, or comes back with what it held long ago."""

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.core.cache import caches
from pytest_django import Settings

from locks.cache import records
from locks.cache.audit import audit
from locks.cache.breaker import breaker_for
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf, make_due
from tests.locks.conftest import SpareServers

pytestmark = pytest.mark.usefixtures("hasty_audit")


@pytest.fixture
def server(source: None, spare: SpareServers) -> ValkeyServer:
    """A cache server of the test's own."""
    return spare("cache")


@pytest.fixture
def way(server: ValkeyServer, settings: Settings) -> Iterator[Proxy]:
    """The way to it."""
    settings.CACHE_REST = 0.1
    with Proxy(server.url) as way:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": way.url}}
        yield way
        caches.close_all()


def asks_again(way: Proxy) -> None:
    wait_until(lambda: not breaker_for(way.url).is_open)


def repaired() -> bool:
    make_due()
    records.apply_due()
    return records.pending().number == 0


def test_a_primary_that_became_a_replica_is_left_for_its_successor(
    server: ValkeyServer, way: Proxy, spare: SpareServers
) -> None:
    """E7 E4: by processes that keep their connections; what was its name leads to another."""
    shelf = Shelf()
    shelf.put(value=1)
    assert shelf.get() == 1
    successor = spare("successor")
    with server.client() as client:
        client.replicaof("127.0.0.1", str(urlsplit(successor.url).port))
    way.lead_to(successor.url)
    shelf.count_up()
    asks_again(way)
    assert shelf.get() == 2
    shelf.count_up()
    shelf.loads.clear()
    assert [shelf.get() for _ in range(3)] == [3, 3, 3]
    assert shelf.loads == ["a"]


@pytest.mark.parametrize("refusal", ["of a replica", "for want of replicas"])
def test_invalidations_wait_for_a_server_that_refuses_writes(
    server: ValkeyServer, way: Proxy, refusal: str
) -> None:
    """E4 E7: meanwhile it may tell what was true, for as long as its TTL lasts; what is not
    there is loaded."""
    shelf = Shelf(ttl=60)
    shelf.put("a", 1)
    shelf.put("b", 1)
    shelf.get("a")
    with server.client() as client:
        if refusal == "of a replica":
            client.replicaof("127.0.0.1", "9")
        else:
            client.config_set("min-replicas-to-write", 1)
        shelf.count_up("a")
        asks_again(way)
        assert not repaired()
        assert shelf.get("a") in (1, 2)
        assert shelf.get("b") == 1
        assert client.pttl(f"sekali:1:{shelf.entry.key(name='a')}") <= 60_000
        if refusal == "of a replica":
            client.replicaof("NO", "ONE")
        else:
            client.config_set("min-replicas-to-write", 0)
    wait_until(repaired)
    assert shelf.get("a") == 2


# --- an old snapshot ------------------------------------------------------------------------


def restored(server: ValkeyServer, way: Proxy) -> None:
    """It dies, and comes back with what it held when it saved last."""
    server.kill()
    server.start()
    asks_again(way)


def left(server: ValkeyServer, shelf: Shelf) -> float:
    """For how many seconds the value will still be there."""
    with server.client() as client:
        return int(client.pttl(f"sekali:1:{shelf.entry.key(name='a')}")) / 1000


def save(server: ValkeyServer) -> None:
    with server.client() as client:
        client.save()


@pytest.mark.parametrize("repair", ["record", "audit"])
def test_a_value_that_a_snapshot_brings_back_does_not_live_longer(
    server: ValkeyServer, way: Proxy, repair: str
) -> None:
    """E4 E8: its time goes on from when it was loaded; and a record that still waits, or the
    audit, ends it at once."""
    shelf = Shelf(ttl=60, jitter=0)
    shelf.put(value=1)
    began = time.monotonic()
    shelf.get()
    save(server)
    shelf.count_up()
    if repair == "audit":
        assert repaired()
    assert shelf.get() == 2
    restored(server, way)
    assert shelf.get() == 1, "this cannot be known at once"
    assert left(server, shelf) <= 60 - (time.monotonic() - began) + 0.1
    assert repaired()
    if repair == "audit":
        assert shelf.get() == 1
        assert audit().mismatched == {shelf.entry.name: 1}
    assert shelf.get() == 2


def test_a_token_that_a_snapshot_brings_back_lets_in_no_more_than_a_ttl(
    server: ValkeyServer, way: Proxy
) -> None:
    """E3 E8: a late reader finds its token again, that an invalidation had taken away."""
    shelf = Shelf(ttl=60, jitter=0, lease=30)
    shelf.put(value=1)
    began = time.monotonic()
    late = shelf.held_up()
    save(server)
    shelf.count_up()
    assert repaired()
    restored(server, way)
    shelf.gate.set()
    assert late.result(5) == 1
    assert shelf.get() == 1
    assert left(server, shelf) <= 60 - (time.monotonic() - began) + 0.1, "counted from its load"
    assert audit().mismatched == {shelf.entry.name: 1}
    assert shelf.get() == 2


def test_a_version_that_a_snapshot_brings_back_is_as_old_as_its_values(
    server: ValkeyServer, way: Proxy
) -> None:
    """E6 E8"""
    shelf = Shelf(ttl=60, jitter=0, versioned=True)
    shelf.put(value=1)
    began = time.monotonic()
    shelf.get()
    save(server)
    shelf.put(value=2)
    shelf.entry.invalidate_all()
    assert repaired()
    assert shelf.get() == 2
    restored(server, way)
    assert shelf.get() == 1
    assert left(server, shelf) <= 60 - (time.monotonic() - began) + 0.1
    assert audit().mismatched == {shelf.entry.name: 1}
    assert shelf.get() == 2
