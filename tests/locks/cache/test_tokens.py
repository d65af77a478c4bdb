"""What was read before an invalidation is not stored after it, whatever else happens."""

from collections.abc import Callable

import pytest

from locks.cache import records
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf, make_due
from tests.locks.cache.unguarded import unguarded

Between = Callable[[Shelf, ValkeyServer], None]


def nothing(_shelf: Shelf, _server: ValkeyServer) -> None:
    return


def the_token_expires(shelf: Shelf, server: ValkeyServer) -> None:
    with server.client() as client:
        client.delete(f"sekali:1:{shelf.entry.key(name='a')}!fill")


def the_server_is_flushed(_shelf: Shelf, server: ValkeyServer) -> None:
    server.flush()


def another_reader_fills(shelf: Shelf, _server: ValkeyServer) -> None:
    shelf.gate.set()
    assert shelf.get() == 2


def another_writer_comes(shelf: Shelf, _server: ValkeyServer) -> None:
    shelf.count_up()


AFTER = [
    nothing,
    the_token_expires,
    the_server_is_flushed,
    another_reader_fills,
    another_writer_comes,
]


def read_write_store(shelf: Shelf, server: ValkeyServer, between: Between) -> int | None:
    """A reader reads; a writer writes, commits, invalidates; the reader goes on. What is told
    then?"""
    shelf.put(value=1)
    late = shelf.held_up()
    # The reader has its row; the gate stays shut for it alone.
    shelf.count_up()
    between(shelf, server)
    shelf.gate.set()
    assert late.result(5) == 1, "its read began before the invalidation"
    return shelf.get()


@pytest.mark.parametrize("between", AFTER)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_late_reader_cannot_store_what_it_read(
    source: None, wire: Proxy, cache_server: ValkeyServer, between: Between, versioned: bool
) -> None:
    """E3"""
    shelf = Shelf(versioned=versioned)
    told = read_write_store(shelf, cache_server, between)
    assert told == (3 if between is another_writer_comes else 2)


def test_without_the_token_it_can(source: None, wire: Proxy, cache_server: ValkeyServer) -> None:
    """E3 I2: the negative control."""
    with unguarded():
        assert read_write_store(Shelf(), cache_server, nothing) == 1


def test_an_invalidation_of_the_whole_entry_stops_a_late_reader_too(
    source: None, wire: Proxy, cache_server: ValkeyServer
) -> None:
    """E3 E6"""
    shelf = Shelf(versioned=True)
    shelf.put(value=1)
    late = shelf.held_up()
    shelf.put(value=2)
    shelf.entry.invalidate_all()
    shelf.gate.set()
    assert late.result(5) == 1
    with cache_server.client() as client:
        assert client.get(f"sekali:1:{shelf.entry.key(name='a')}") is None
    assert shelf.get() == 2


def test_an_expired_token_alone_stops_a_late_reader(
    shelf: Shelf, cache_server: ValkeyServer
) -> None:
    """E3: absent never matches, since an invalidation may have deleted it."""
    shelf.put(value=1)
    late = shelf.held_up()
    the_token_expires(shelf, cache_server)
    shelf.gate.set()
    assert late.result(5) == 1
    with cache_server.client() as client:
        assert client.get(f"sekali:1:{shelf.entry.key(name='a')}") is None


def test_a_record_that_is_applied_stops_a_late_reader(shelf: Shelf, wire: Proxy) -> None:
    """E3 E4: the first delete was lost, the second finds the reader still at it."""
    shelf.put(value=1)
    late = shelf.held_up()
    wire.drop_request(b"DEL")
    shelf.count_up()
    assert not late.done()
    records_are_applied(wire)
    shelf.gate.set()
    assert late.result(5) == 1
    assert shelf.get() == 2


def records_are_applied(wire: Proxy) -> None:
    wire.heal()
    make_due()
    wait_until(records.apply_due, timeout=3)
