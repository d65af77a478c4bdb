"""``manage.py caches`` and ``manage.py warm_cache``, as an operator meets them."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import DjangoAssertNumQueries, Settings

from locks.cache import records
from tests.lab.proxy import Proxy
from tests.lab.scripted.models import Counter
from tests.locks.cache.shelf import Shelf
from tests.locks.conftest import SpareServers


def printed(command: str, *arguments: str) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def refused(command: str, *arguments: str) -> tuple[str, str]:
    """What is printed all the same, and why it fails."""
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command(command, *arguments, stdout=out)
    return out.getvalue(), str(error.value)


def wait_since(seconds: float) -> None:
    """Have all records wait for so long already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE locks_invalidation SET recorded_at = now() - %s * interval '1 second'",
            [seconds],
        )


def test_caches_lists_every_entry(
    shelf: Shelf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E1"""
    with django_assert_num_queries(0):
        entries = {entry["name"]: entry for entry in json.loads(printed("caches", "--json"))}
        table = printed("caches")
    ours = entries["inventory"]
    assert ours["dimensions"] == ["owner"]
    assert ours["invalidated_by"] == ["inventory.sync", "purchases.purchase"]
    assert all(entry["source"] and entry["fallback"] for entry in entries.values())
    assert all(entry["ttl"] + entry["stale"] <= entry["tolerates"] for entry in entries.values())
    for name in ("inventory", "product", "product-page", "purchase", shelf.entry.name):
        assert name in entries
        assert f"\n{name} " in table


def test_caches_lists_only_what_is_asked_for() -> None:
    """E1: and a wrong name is told, with the right ones."""
    asked = json.loads(printed("caches", "purchase", "inventory", "purchase", "--json"))
    assert [entry["name"] for entry in asked] == ["purchase", "inventory"]
    assert printed("caches", "inventory").count("\n") == 2
    _, why = refused("caches", "inventori")
    assert why.startswith("'inventori' is no cache entry. There are: ")
    assert "inventory" in why
    assert "--markdown" in refused("caches", "--state", "--markdown")[1]


def test_caches_shows_counters_and_what_waits(shelf: Shelf) -> None:
    """E4 E8: for programs and for people."""
    shelf.put()
    shelf.get()
    shelf.count_up()
    name = shelf.entry.name
    state: dict[str, Any] = json.loads(printed("caches", name, "--state", "--json"))
    assert state["answers"] is True
    assert list(state["counters"]) == [name]
    assert state["counters"][name]["load"] == 1
    assert state["pending"]["number"] == 1
    assert not state["pending"]["late"]
    table = printed("caches", "--state")
    assert f"\n{name} " in table
    assert "mismatched" in table
    assert "Invalidations that wait: 1, the oldest for " in table


def test_caches_fails_when_invalidations_wait_too_long(shelf: Shelf, settings: Settings) -> None:
    """E4: so that a script notices. What is known is printed all the same."""
    shelf.put()
    shelf.count_up()
    wait_since(settings.CACHE_REPAIR_DELAY + records.LATE - 2)
    printed("caches", "--state")
    wait_since(settings.CACHE_REPAIR_DELAY + records.LATE)
    out, why = refused("caches", "--state", "--json")
    assert json.loads(out)["pending"]["late"]
    assert "no dispatcher runs" in why


def test_caches_says_when_the_cache_does_not_answer(shelf: Shelf, wire: Proxy) -> None:
    """E7 E8: what waits is told all the same."""
    shelf.put()
    shelf.count_up()
    wire.black_hole()
    out, why = refused("caches", "--state", "--json")
    state = json.loads(out)
    assert (state["answers"], state["pending"]["number"]) == (False, 1)
    assert "does not answer" in why


def test_warm_cache_loads_hot_keys(
    source: None, wire: Proxy, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E5: those that are not cached, each once, and what is not there is no failure."""
    names = [f"n{number}" for number in range(150)]
    shelf = Shelf(hot=lambda: [{"name": name} for name in [*names, "none", "n0"]])
    Counter.objects.bulk_create(
        Counter(name=name, value=number) for number, name in enumerate(names)
    )
    shelf.get("n7")
    with django_assert_num_queries(2):
        out = printed("warm_cache", shelf.entry.name)
    assert out == f"{shelf.entry.name}: 151 hot, 1 were cached, 150 are\n"
    with django_assert_num_queries(0):
        assert shelf.entry.get_many([{"name": name} for name in names]) == list(range(150))
    assert json.loads(printed("warm_cache", shelf.entry.name, "--json")) == {
        shelf.entry.name: {"hot": 151, "before": 150, "cached": 150, "nothing": 1}
    }


def test_warm_cache_says_what_it_cannot_do(shelf: Shelf, wire: Proxy) -> None:
    """E5: nothing is loaded for a cache that is away, and an error is no traceback."""
    hot = Shelf(hot=lambda: [{"name": "a"}])
    assert "no cache entry. Those with hot keys: " in refused("warm_cache", "producs")[1]
    _, why = refused("warm_cache", shelf.entry.name)
    assert "declares no hot keys" in why
    assert hot.entry.name in why
    hot.error = LookupError("it is gone")
    assert refused("warm_cache", hot.entry.name)[1].endswith("LookupError: it is gone")
    hot.error = None
    wire.black_hole()
    assert "does not answer" in refused("warm_cache", hot.entry.name)[1]
    assert hot.loads == []


def test_warm_cache_notices_that_nothing_was_stored(
    source: None, spare: SpareServers, settings: Settings
) -> None:
    """E5 E7: by a cache that is full, and refuses."""
    server = spare("full", maxmemory="1", maxmemory_policy="noeviction")
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
    shelf = Shelf(hot=lambda: [{"name": "a"}])
    shelf.put()
    out, why = refused("warm_cache", shelf.entry.name)
    assert out == f"{shelf.entry.name}: 1 hot, 0 were cached, 0 are\n"
    assert "stores nothing" in why


@pytest.fixture
def no_database(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody listens where this process looks for it."""
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "PORT", "9")
        yield
    connection.close()


def test_without_the_database_they_say_so(no_database: None) -> None:
    """E8: and an operator is told no traceback."""
    assert "inventory_product" in printed("caches", "product")
    assert "database does not answer" in refused("caches", "--state")[1]
    assert refused("warm_cache", "product")[1].startswith("product cannot be loaded: ")
