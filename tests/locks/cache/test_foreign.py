"""What other code, or another time, has left under our keys is nothing, and does no harm."""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from locks.cache.audit import audit
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.locks.cache.shelf import Shelf

Left = Callable[[redis.Redis, str], Any]


def until(seconds: float) -> bytes:
    """The head of a value that says it is fresh for so long."""
    return b"%d -\n" % int((time.time() + seconds) * 1000)


def text(value: bytes) -> Left:
    return lambda client, key: client.set(key, value)


def a_list(client: redis.Redis, key: str) -> None:
    client.rpush(key, "a")


def a_hash(client: redis.Redis, key: str) -> None:
    client.hset(key, "a", "b")


LEFT: dict[str, Left] = {
    "letters": text(b"x"),
    "nothing": text(b""),
    "bytes": text(b"\x00\xff"),
    "a number, as django-redis keeps it": text(b"7"),
    "JSON, as django-redis keeps it": text(b'{"a": 1}'),
    "no JSON": text(until(30) + b"{"),
    "no UTF-8": text(until(30) + b'"\xff"'),
    "JSON too deep to read": text(until(30) + b"[" * 100_000),
    "a number too long to read": text(until(30) + b"9" * 10_000),
    "a pickle": text(until(30) + pickle.dumps({"a": 1})),
    "a time too long to read": text(b"9" * 10_000 + b" -\n7"),
    "fresh for ever": text(until(10_000_000) + b"7"),
    "past for ever": text(b"1 -\n7"),
    "of another version": text(until(30).replace(b"-", b"other") + b"7"),
    "a list": a_list,
    "a hash": a_hash,
}


pytestmark = pytest.mark.usefixtures("hasty_audit")


@pytest.mark.parametrize("left", LEFT.values(), ids=list(LEFT))
@pytest.mark.parametrize("options", [{}, {"versioned": True}, {"stale": 60}], ids=str)
def test_it_is_loaded_anew_and_stored_over_it(
    source: None, wire: Proxy, cache_server: ValkeyServer, left: Left, options: dict[str, Any]
) -> None:
    """E7: a miss, never an error, never told; and it does not stop the audit."""
    shelf = Shelf(**options)
    shelf.put(value=5)
    with cache_server.client() as client:
        left(client, f"sekali:1:{shelf.entry.key(name='a')}")
        audit()
        left(client, f"sekali:1:{shelf.entry.key(name='a')}")
        assert shelf.get() == 5
        assert shelf.entry.get_many([{"name": "a"}, {"name": "b"}]) == [5, None]
    shelf.loads.clear()
    assert shelf.get() == 5
    assert shelf.loads == []


@pytest.mark.parametrize("left", [a_list, text(b"\x00 \n")])
def test_it_may_stand_in_the_place_of_a_token_or_a_version(
    source: None, wire: Proxy, cache_server: ValkeyServer, left: Left
) -> None:
    """E7"""
    shelf = Shelf(versioned=True, wait=0)
    shelf.put(value=5)
    with cache_server.client() as client:
        left(client, f"sekali:1:{shelf.entry.every_key()}")
        assert [shelf.get(), shelf.get()] == [5, 5]
        assert shelf.loads == ["a"]
        shelf.entry.invalidate(name="a")
        left(client, f"sekali:1:{shelf.entry.key(name='a')}!fill")
        # A token like any other, as far as anybody knows, except that it is no string.
        assert [shelf.get(), shelf.get()] == [5, 5]


def test_nothing_past_its_time_is_served_while_loads_fail(
    source: None, wire: Proxy, cache_server: ValkeyServer
) -> None:
    """E5 E7: not even where old values may be served: that has its end, whoever stored it."""
    shelf = Shelf(stale=60)
    shelf.put(value=5)
    shelf.error = LookupError()
    with cache_server.client() as client:
        for age, served in ((30, True), (90, False)):
            client.set(f"sekali:1:{shelf.entry.key(name='a')}", until(-age) + b"7")
            if served:
                assert shelf.get() == 7
            else:
                with pytest.raises(LookupError):
                    shelf.get()


class Trap:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_no_code_is_run_that_stands_in_the_cache(
    shelf: Shelf, cache_server: ValkeyServer, tmp_path: Path
) -> None:
    """E7: the check ``locks.E012`` sees to it that values are not pickles."""
    shelf.put(value=5)
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    with cache_server.client() as client:
        for raw in (trap, until(30) + trap):
            client.set(f"sekali:1:{shelf.entry.key(name='a')}", raw)
            audit()
            client.set(f"sekali:1:{shelf.entry.key(name='a')}", raw)
            assert shelf.get() == 5
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)  # noqa: S301
    assert (tmp_path / "sprung").exists(), "it would have been seen"
