"""The cache is down, frozen, slow, full or restarted: the answers are right."""

import os
import time

import pytest
from django.core.cache import caches
from pytest_django import DjangoAssertNumQueries, Settings

from locks.cache import records
from locks.cache.breaker import breaker_for
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf, in_thread, make_due
from tests.locks.conftest import SpareServers


def test_a_frozen_cache_costs_one_time_out_however_many_calls(
    shelf: Shelf, wire: Proxy, settings: Settings
) -> None:
    """E7"""
    settings.CACHE_REST = 60
    for name in ("a", "b"):
        shelf.put(name)
        shelf.get(name)
    wire.black_hole()
    began = time.monotonic()
    for value in range(2, 22):
        shelf.put("a", value)
        assert shelf.get("a") == value
        shelf.count_up("b")
        assert shelf.entry.get_many([{"name": "a"}, {"name": "b"}]) == [value, value]
    assert len(wire.swallowed) == 1, "of a hundred calls"
    assert time.monotonic() - began < 10


def test_after_its_rest_one_reader_asks_for_all(
    shelf: Shelf, wire: Proxy, settings: Settings
) -> None:
    """E7"""
    settings.CACHE_REST = 1.5
    shelf.put()
    shelf.get()
    wire.black_hole()
    shelf.get()
    wait_until(lambda: not breaker_for(wire.url).is_open)
    wire.swallowed.clear()
    readers = [in_thread(shelf.get) for _ in range(8)]
    assert [reader.result(10) for reader in readers] == [1] * 8
    assert len(wire.swallowed) == 1


def test_a_cache_that_comes_back_is_used_again(
    shelf: Shelf, wire: Proxy, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E7"""
    shelf.put()
    wire.black_hole()
    assert shelf.get() == 1
    wire.heal()
    wait_until(lambda: not breaker_for(wire.url).is_open)
    shelf.get()
    with django_assert_num_queries(0):
        assert shelf.get() == 1


def test_a_killed_cache_costs_nothing_and_its_successor_is_found(
    source: None, cache_server: ValkeyServer, settings: Settings
) -> None:
    """E7: connections that were kept are replaced, and no read fails for it."""
    settings.CACHE_REST = 0.05
    shelf = Shelf()
    shelf.put()
    assert shelf.get() == 1
    cache_server.kill()
    for value in range(10):
        shelf.put(value=value)
        assert shelf.get() == value
    cache_server.start()
    wait_until(lambda: not breaker_for(cache_server.url).is_open)
    shelf.loads.clear()
    assert [shelf.get() for _ in range(3)] == [9, 9, 9]
    assert shelf.loads == ["a"]
    cache_server.restart()
    shelf.loads.clear()
    assert [shelf.get() for _ in range(3)] == [9, 9, 9]
    assert shelf.loads == ["a"], "a restart between two reads is not even noticed"


def test_a_slow_cache_gives_right_answers(shelf: Shelf, wire: Proxy) -> None:
    """E7"""
    shelf.put()
    shelf.get()
    wire.delay(0.05)
    began = time.monotonic()
    for _ in range(3):
        shelf.count_up()
        assert shelf.get() == shelf.get()
    assert shelf.get() == 4
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("command", [b"\r\nGET\r\n", b"\r\nEVALSHA\r\n", b"\r\nDEL\r\n"])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply", "reset_before", "reset_after"])
def test_a_call_that_is_lost_does_no_harm(
    shelf: Shelf, wire: Proxy, command: bytes, fault: str
) -> None:
    """E7 E4: whichever it is, and whether or not the server has carried it out."""
    shelf.put("warm")
    shelf.get("warm")
    shelf.count_up("warm")
    shelf.put(value=1)
    getattr(wire, fault)(command)
    assert shelf.get() == 1
    assert shelf.get() == 1
    shelf.count_up()
    wire.heal()
    make_due()
    wait_until(records.apply_due, timeout=3)
    assert shelf.get() == 2
    shelf.count_up()
    assert shelf.get() == 3


def test_a_full_cache_that_refuses_writes_is_read_around(
    source: None, spare: SpareServers, settings: Settings
) -> None:
    """E7: it answers, so it is not left alone."""
    server = spare("full", maxmemory="1", maxmemory_policy="noeviction")
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
    shelf = Shelf()
    for value in range(5):
        shelf.put(value=value)
        assert shelf.get() == value
    caches.close_all()


def test_a_forgotten_script_is_sent_again(shelf: Shelf, cache_server: ValkeyServer) -> None:
    """E7"""
    for value in range(3):
        shelf.put(value=value)
        with cache_server.client() as client:
            client.script_flush()
            client.flushdb()
        assert shelf.get() == value
        assert shelf.get() == value


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12 and later
def test_a_forked_child_has_connections_of_its_own(shelf: Shelf) -> None:
    """E7: parent and child do not read each other's answers."""
    shelf.put("a", 1)
    shelf.put("b", 2)
    shelf.get("a")
    shelf.get("b")
    child = os.fork()
    if child == 0:
        wrong = any(shelf.get("b") != 2 for _ in range(300))
        os._exit(1 if wrong else 0)
    assert all(shelf.get("a") == 1 for _ in range(300))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
