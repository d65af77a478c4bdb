"""Reading through the cache."""

import enum
import uuid
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

from locks.cache import CacheEntry
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Shelf


def test_a_value_is_loaded_once(
    shelf: Shelf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E2"""
    shelf.put(value=7)
    with django_assert_num_queries(1):
        assert [shelf.get() for _ in range(5)] == [7] * 5
    assert shelf.loads == ["a"]


def test_a_hit_is_one_round_trip_and_a_miss_three(shelf: Shelf, wire: Proxy) -> None:
    """E2"""
    shelf.put("warm")
    shelf.get("warm")
    shelf.put()
    wire.requests.clear()
    shelf.get()
    assert len(wire.requests) == 3
    wire.requests.clear()
    shelf.get()
    assert len(wire.requests) == 1


def test_many_hits_are_one_round_trip(
    shelf: Shelf, wire: Proxy, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E2"""
    names = [f"n{number}" for number in range(20)]
    for number, name in enumerate(names):
        shelf.put(name, number)
    many = [{"name": name} for name in names]
    with django_assert_num_queries(1):
        assert shelf.entry.get_many(many) == list(range(20))
    wire.requests.clear()
    with django_assert_num_queries(0):
        assert shelf.entry.get_many([*many, many[3]]) == [*range(20), 3]
    assert len(wire.requests) == 1
    assert shelf.entry.get_many([]) == []


def test_what_is_missing_among_many_is_loaded_alone(shelf: Shelf) -> None:
    """E2"""
    shelf.put("a", 1)
    shelf.put("b", 2)
    assert shelf.get("a") == 1
    assert shelf.entry.get_many([{"name": "b"}, {"name": "a"}]) == [2, 1]
    assert shelf.loads == ["a", "b"]


def test_reads_in_a_transaction_bypass_the_cache(shelf: Shelf) -> None:
    """E2: what it has written itself, others must not see, nor it the old value."""
    shelf.put(value=1)
    assert shelf.get() == 1
    with transaction.atomic():
        shelf.put(value=2)
        assert shelf.get() == 2
        transaction.set_rollback(True)
    assert shelf.get() == 1
    connection.set_autocommit(False)
    try:
        shelf.put(value=3)
        assert shelf.get() == 3
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert shelf.get() == 1


def test_nothing_is_kept_only_where_declared(source: None, wire: Proxy) -> None:
    """E1: negative caching."""
    without, with_it = Shelf(), Shelf(negative=30)
    for shelf in (without, with_it):
        assert shelf.get() is None
        assert shelf.get() is None
    assert (len(without.loads), len(with_it.loads)) == (2, 1)
    with_it.put()
    assert with_it.get() is None
    with_it.entry.invalidate(name="a")
    assert with_it.get() == 1


def test_a_ttl_is_shortened_at_random_and_counts_from_the_load(
    source: None, wire: Proxy, cache_server: ValkeyServer
) -> None:
    """E5: jitter."""
    shelf = Shelf(ttl=100, jitter=0.5)
    names = [f"n{number}" for number in range(30)]
    for name in names:
        shelf.put(name)
    shelf.entry.get_many([{"name": name} for name in names])
    with cache_server.client() as client:
        keys = [f"sekali:1:{shelf.entry.key(name=name)}" for name in names]
        lives = [client.pttl(key) / 1000 for key in keys]
    assert min(lives) > 45
    assert max(lives) <= 100
    assert max(lives) - min(lives) > 10


def test_an_expired_value_is_loaded_anew(source: None, wire: Proxy) -> None:
    """E1"""
    shelf = Shelf(ttl=0.2, jitter=0)
    shelf.put(value=1)
    assert shelf.get() == 1
    shelf.put(value=2)
    wait_until(lambda: shelf.get() == 2, timeout=2)


def one(owner: int, id: uuid.UUID, name: str) -> int:
    return 1


DIMENSIONS: CacheEntry[int] = CacheEntry(
    "dimensions", key="{owner}:{name}:{id}", load=one, ttl=1, tolerates=1, source="none"
)


def test_two_texts_that_join_to_the_same_have_two_keys() -> None:
    """E6: "a:b" and "c" are not "a" and "b:c"."""

    def load(tenant: str, name: str) -> int:
        return 1

    entry: CacheEntry[int] = CacheEntry(
        "tenants", key="{tenant}:{name}", load=load, ttl=1, tolerates=1, source="none"
    )
    pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("", "a:b:c"),
        ("a:b:c", ""),
        ("a:", "b:c"),
    ]
    assert len({entry.key(tenant=tenant, name=name) for tenant, name in pairs}) == len(pairs)


def test_a_key_holds_every_dimension_and_no_two_are_alike() -> None:
    """E6"""
    entry = DIMENSIONS
    id = uuid.UUID(int=3)
    keys = {
        entry.key(owner=owner, name=name, id=id)
        for owner in (1, 11)
        for name in ("", "1", "a:b", "a%3Ab", "é", "!fill", "*", "@")
    }
    assert len(keys) == 16
    assert entry.key(owner="7", name="a", id=str(id)) == entry.key(owner=7, name="a", id=id)
    for key in keys:
        parsed = entry.keys.parsed(key)
        assert parsed is not None
        assert entry.keys.rendered(parsed) == key
    assert entry.keys.parsed("dimensions@1:1:2") is None
    for wrong in ({"owner": 1}, {"owner": 1, "name": "a", "id": id, "more": 1}, {}):
        with pytest.raises(TypeError):
            entry.key(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"owner": "x"},
        {"owner": 1.9},
        {"owner": True},
        {"owner": None},
        {"name": None},
        {"name": 5},
        {"name": b"a"},
        {"name": "\ud800"},
        {"id": "3"},
        {"id": None},
    ],
    ids=repr,
)
def test_a_dimension_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    """E6: or nobody's values would be shown to a tenant by the name of None."""
    with pytest.raises(ValueError, match=r"."):
        DIMENSIONS.get(**{"owner": 1, "name": "a", "id": uuid.UUID(int=3), **wrong})


def test_a_member_of_an_enumeration_is_its_value() -> None:
    """E6: else an invalidation by the one would leave what is kept under the other."""

    class Locale(str, enum.Enum):  # noqa: UP042  (its str() is not its value)
        DE = "de"

    class Number(enum.IntEnum):
        ONE = 1

    id = uuid.UUID(int=3)
    assert DIMENSIONS.key(owner=Number.ONE, name=Locale.DE, id=id) == DIMENSIONS.key(
        owner=1, name="de", id=id
    )


ODD = [
    "",
    " ",
    "a b",
    "a\nb",
    "a\r\nDEL x",
    "\0",
    "\x7f",
    "é",
    "e\u0301",
    "\U0001f600",
    "{a}",
    "%",
    "%41",
]


def test_any_text_may_be_a_dimension(shelf: Shelf, cache_server: ValkeyServer) -> None:
    """E6: spaces, control characters, whatever: each is itself, and its key is plain."""
    wanted = [*ODD, "x" * 400, "\u20ac" * 40]
    entry: CacheEntry[str] = CacheEntry(
        "echo", key="{name}", load=echo, ttl=60, tolerates=60, source="itself"
    )
    assert entry.get_many([{"name": name} for name in wanted]) == wanted
    with cache_server.client() as client:
        assert len(client.keys("*echo*")) == len(wanted)
    assert [entry.get(name=name) for name in wanted] == wanted
    for name in wanted:
        assert all("!" <= letter <= "~" for letter in entry.key(name=name))
        assert entry.keys.parsed(entry.key(name=name)) == {"name": name}


def echo(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key": ""}, "depends on"),
        ({"key": "{name}:{locale}"}, "depends on"),
        ({"key": "name"}, "is not like"),
        ({"ttl": 0}, "above 0"),
        ({"stale": -1}, "below 0"),
        ({"ttl": 500, "stale": 200}, "tolerated"),
        ({"jitter": 1}, "fraction"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(options: dict[str, Any], complaint: str) -> None:
    """E1 E6"""
    with pytest.raises(ImproperlyConfigured, match=complaint):
        Shelf(**options)


def test_an_entry_is_declared_once(shelf: Shelf) -> None:
    """E1"""
    options = {"key": "", "ttl": 1, "tolerates": 1, "source": "x"}
    with pytest.raises(ImproperlyConfigured, match="twice"):
        CacheEntry(shelf.entry.name, load=lambda: 1, **options)  # type: ignore[arg-type]


def test_a_very_long_key_is_not_cached(shelf: Shelf, wire: Proxy) -> None:
    """E6"""
    shelf.put()
    wire.requests.clear()
    assert shelf.get("x" * 600) is None
    assert wire.requests == []
