"""Invalidation: after the commit, and never without it."""

import asyncio
from functools import partial

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

from locks.cache import CacheEntry, invalidate, records
from locks.cache.breaker import breaker_for
from locks.models import InvalidationRecord
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Failure, Shelf, in_thread, make_due


def test_a_write_is_seen_at_once_after_its_commit(shelf: Shelf) -> None:
    """E2"""
    shelf.put(value=1)
    for value in range(1, 6):
        assert shelf.get() == value
        shelf.count_up()
    assert shelf.get() == 6


def test_others_are_told_the_old_value_until_the_commit(shelf: Shelf, wire: Proxy) -> None:
    """E2: never before commit."""
    shelf.put(value=1)
    shelf.get()
    with transaction.atomic():
        shelf.put(value=2)
        wire.requests.clear()
        shelf.entry.invalidate(name="a")
        assert wire.requests == []
        assert in_thread(shelf.get).result(5) == 1
    assert len([request for request in wire.requests if b"DEL" in request]) == 1
    assert shelf.get() == 2


def test_a_rolled_back_write_invalidates_nothing(shelf: Shelf, wire: Proxy) -> None:
    """E2"""
    shelf.put(value=1)
    shelf.get()
    wire.requests.clear()
    with pytest.raises(Failure):
        shelf.write_and_fail()
    assert wire.requests == []
    assert not InvalidationRecord.objects.exists()
    assert shelf.get() == 1
    assert shelf.loads == ["a"]


def test_a_rolled_back_savepoint_invalidates_nothing(shelf: Shelf) -> None:
    """E2: what is outside the savepoint is invalidated all the same."""
    for name in ("a", "b"):
        shelf.put(name)
        shelf.get(name)
    with transaction.atomic():
        shelf.entry.invalidate(name="b")
        with pytest.raises(Failure):
            shelf.write_and_fail()
    assert [record.key for record in InvalidationRecord.objects.all()] == [
        shelf.entry.key(name="b")
    ]
    shelf.loads.clear()
    assert [shelf.get("a"), shelf.get("b")] == [1, 1]
    assert shelf.loads == ["b"]


@pytest.mark.parametrize("durable", [True, False])
def test_it_waits_for_the_outermost_commit(shelf: Shelf, wire: Proxy, durable: bool) -> None:
    """E2: however deep it is asked for, and keeps to what its own savepoint came to."""
    for name in "abcd":
        shelf.put(name)
        shelf.get(name)
    wire.requests.clear()
    with transaction.atomic(durable=durable):
        with transaction.atomic():
            shelf.entry.invalidate(name="a")
            with pytest.raises(Failure), transaction.atomic():
                with transaction.atomic():
                    shelf.entry.invalidate(name="b")
                raise Failure
            with transaction.atomic(savepoint=False):
                shelf.entry.invalidate(name="c")
        assert wire.requests == []
    recorded = InvalidationRecord.objects.values_list("key", flat=True)
    assert set(recorded) == {shelf.entry.key(name=name) for name in "ac"}
    shelf.loads.clear()
    assert [shelf.get(name) for name in "abcd"] == [1] * 4
    assert shelf.loads == ["a", "c"]


def fail() -> None:
    raise Failure


def test_a_hook_of_others_that_fails_does_not_lose_it(shelf: Shelf) -> None:
    """E2 E4: one after it finds it done; one before it keeps Django from it, but not from the
    record."""
    shelf.put(value=1)
    assert shelf.get() == 1
    with pytest.raises(Failure), transaction.atomic():
        shelf.put(value=2)
        shelf.entry.invalidate(name="a")
        transaction.on_commit(fail)
    assert shelf.get() == 2
    with pytest.raises(Failure), transaction.atomic():
        transaction.on_commit(fail)
        shelf.put(value=3)
        shelf.entry.invalidate(name="a")
    assert shelf.get() == 2
    make_due()
    records.apply_due()
    assert shelf.get() == 3


def test_it_can_be_asked_for_in_a_hook_of_the_commit(shelf: Shelf) -> None:
    """E2: as other caches want it."""
    shelf.put(value=1)
    assert shelf.get() == 1
    with transaction.atomic():
        shelf.put(value=2)
        transaction.on_commit(lambda: shelf.entry.invalidate(name="a"))
        assert not InvalidationRecord.objects.exists()
    assert shelf.get() == 2
    assert InvalidationRecord.objects.count() == 1


def test_where_no_commit_is_heard_of_it_is_refused(shelf: Shelf) -> None:
    """E2: with autocommit off Django runs no hooks, so it cannot act after the commit."""
    connection.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError):
            shelf.entry.invalidate(name="a")
    finally:
        connection.rollback()
        connection.set_autocommit(True)


def test_from_asynchronous_code_it_is_called_in_a_thread(shelf: Shelf) -> None:
    """E2: as all that asks Django's database."""
    shelf.put(value=1)

    async def change() -> list[int | None]:
        get = sync_to_async(shelf.get)
        before = await get()
        await sync_to_async(shelf.count_up)()
        return [before, *await asyncio.gather(*(get() for _ in range(5)))]

    assert async_to_sync(change)() == [1] + [2] * 5


def test_it_costs_a_write_one_statement_and_a_read_none(
    shelf: Shelf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """E4: however many keys."""
    other = Shelf(versioned=True)
    with transaction.atomic(), django_assert_num_queries(1):
        invalidate(
            *(shelf.entry.key(name=f"n{number}") for number in range(50)),
            other.entry.every_key(),
        )
    assert InvalidationRecord.objects.count() == 51
    with django_assert_num_queries(0):
        invalidate()


def test_outside_a_transaction_it_acts_at_once(shelf: Shelf) -> None:
    """E2"""
    shelf.put(value=1)
    assert shelf.get() == 1
    shelf.put(value=2)
    shelf.entry.invalidate(name="a")
    assert shelf.get() == 2


def test_all_values_of_an_entry_are_invalidated_in_one_step(
    source: None, wire: Proxy, cache_server: ValkeyServer
) -> None:
    """E6: the same few bytes for a hundred values as for one, and no KEYS or SCAN."""
    shelf = Shelf(versioned=True)
    names = [f"n{number}" for number in range(100)]
    for name in names:
        shelf.put(name, 1)
    many = [{"name": name} for name in names]
    assert shelf.entry.get_many(many) == [1] * 100
    for name in names:
        shelf.put(name, 2)
    with cache_server.client() as client:
        client.config_resetstat()
        wire.requests.clear()
        shelf.entry.invalidate_all()
        apart_from_counters = [request.partition(b"HINCRBY")[0] for request in wire.requests]
        assert sum(len(request) for request in apart_from_counters) < 400
        assert shelf.entry.get_many(many) == [2] * 100
        assert shelf.get("n5") == 2
        commands = client.info("commandstats")
    assert not {"cmdstat_keys", "cmdstat_scan"} & commands.keys()
    assert commands["cmdstat_del"]["calls"] <= 101


def test_a_version_never_comes_back(source: None, wire: Proxy, cache_server: ValkeyServer) -> None:
    """E6: it is random, so a flush cannot start it again."""
    shelf = Shelf(versioned=True)
    seen = set()
    with cache_server.client() as client:
        for _ in range(5):
            shelf.get()
            seen.add(client.get(f"sekali:1:{shelf.entry.every_key()}"))
            client.flushdb()
    assert len(seen) == 5
    assert None not in seen


def test_only_a_versioned_entry_can_be_invalidated_as_a_whole(shelf: Shelf) -> None:
    """E6"""
    with pytest.raises(TypeError):
        shelf.entry.invalidate_all()


def test_one_value_of_a_versioned_entry_can_be_invalidated(source: None, wire: Proxy) -> None:
    """E6"""
    shelf = Shelf(versioned=True)
    for name in ("a", "b"):
        shelf.put(name)
        shelf.get(name)
    shelf.count_up("a")
    shelf.loads.clear()
    assert [shelf.get("a"), shelf.get("b")] == [2, 1]
    assert shelf.loads == ["a"]


# --- repair -----------------------------------------------------------------------------


def test_an_invalidation_lost_in_an_outage_is_repaired(shelf: Shelf, wire: Proxy) -> None:
    """E4: black-holed at commit. The writer pays one time-out and is not told."""
    shelf.put(value=1)
    assert shelf.get() == 1
    wire.black_hole()
    shelf.count_up()
    assert records.pending().number == 1
    make_due()
    assert records.apply_due() == 0
    assert records.pending().number == 1
    wire.heal()
    assert shelf.get() in (1, 2), "not repaired yet, or not asking the cache yet"
    make_due()
    wait_until(records.apply_due, timeout=3)
    assert shelf.get() == 2
    assert records.pending() == records.Pending(0, 0)


def test_a_record_falls_due_after_some_seconds_and_is_applied_once_more(
    shelf: Shelf, settings: object
) -> None:
    """E4: also if the first delete went well, for a cache that fails over loses deletes."""
    shelf.put(value=1)
    shelf.count_up()
    assert records.apply_due() == 0
    (record,) = InvalidationRecord.objects.all()
    assert 3 <= (record.due_at - record.recorded_at).total_seconds() <= 4
    assert record.due_at.microsecond == 0
    shelf.get()
    make_due()
    assert records.apply_due() == 1
    assert not InvalidationRecord.objects.exists()
    shelf.loads.clear()
    assert shelf.get() == 2
    assert shelf.loads == ["a"]


def test_records_of_a_key_are_applied_together(shelf: Shelf, wire: Proxy) -> None:
    """E4: at most once a second, or frequent writes would starve the readers."""
    shelf.put(value=0)
    for _ in range(20):
        shelf.count_up()
    dues = set(InvalidationRecord.objects.values_list("due_at", flat=True))
    assert len(dues) <= 2
    make_due()
    wire.requests.clear()
    assert records.apply_due() == 20
    (request,) = wire.requests
    assert request.count(shelf.entry.key(name="a").encode()) == 2, "the value and the token"


def test_the_oldest_record_that_waits_is_shown(shelf: Shelf) -> None:
    """E4"""
    assert records.pending() == records.Pending(0, 0)
    shelf.put()
    shelf.count_up()
    shelf.count_up()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE locks_invalidation SET recorded_at = now() - interval '1 minute' "
            "WHERE id = (SELECT min(id) FROM locks_invalidation)"
        )
    found = records.pending()
    assert found.number == 2
    assert 60 <= found.oldest < 65


def test_while_the_cache_rests_records_cost_no_statement(
    shelf: Shelf, wire: Proxy, django_assert_num_queries: DjangoAssertNumQueries, settings: object
) -> None:
    """E4"""
    shelf.put()
    wire.black_hole()
    shelf.count_up()
    make_due()
    with django_assert_num_queries(0):
        assert records.apply_due() == 0


def test_a_target_is_a_key_with_holes(shelf: Shelf) -> None:
    """E2"""
    target = shelf.entry.on(name="{owner}-{sku}")
    assert target.fields == {"owner", "sku"}
    assert target.key({"owner": 7, "sku": "x", "more": 1}) == shelf.entry.key(name="7-x")
    with pytest.raises(TypeError):
        shelf.entry.on(names="{owner}")
    assert isinstance(shelf.entry, CacheEntry)


def test_more_records_than_a_batch_are_applied_in_one_round(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E4"""
    monkeypatch.setattr(records, "BATCH", 10)
    for number in range(25):
        shelf.entry.invalidate(name=f"n{number}")
    make_due()
    assert records.apply_due() == 25
    assert records.pending().number == 0


def test_a_record_stays_until_the_cache_has_answered(shelf: Shelf, wire: Proxy) -> None:
    """E4: the cache goes away while the record is applied, or its answer does."""
    shelf.put()
    shelf.count_up()
    for fault in (wire.black_hole, partial(wire.drop_reply, b"DEL")):
        make_due()
        fault()
        assert records.apply_due() == 0
        assert records.pending().number == 1
        wire.heal()
        wait_until(lambda: not breaker_for(wire.url).is_open)
    make_due()
    assert records.apply_due() == 1
