"""Any order of misses that pause, writes, outages, flushes and expiries, on the real servers.

A read that starts after an acknowledged invalidation never returns an older version.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.db import transaction
from django.db.models import F
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import sampled_from
from pytest_django import Settings

from locks.cache import CacheEntry, records
from locks.cache.breaker import breaker_for
from locks.models import InvalidationRecord
from tests.lab.proxy import Proxy
from tests.lab.scripted.models import Counter
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import Failure, in_thread, make_due
from tests.locks.cache.unguarded import unguarded

#: The key's number is the example's, so that no example sees what an earlier one left behind.
_example = threading.local()


class Paused:
    """A reader that has read its source and not gone on yet."""

    def __init__(self, floor: int) -> None:
        #: The version that it must at least return.
        self.floor = floor
        self.reached = threading.Event()
        self.gate = threading.Event()
        self.answer: Future[int | None]


def load(name: str) -> int:
    value = Counter.objects.values_list("value", flat=True).get(name=name)
    if paused := getattr(_example, "paused", None):
        paused.reached.set()
        assert paused.gate.wait(30)
    return value


def entry(name: str, **options: Any) -> CacheEntry[int]:
    return CacheEntry(
        f"machine-{name}",
        key="{name}",
        load=load,
        tolerates=600,
        source="scripted_counter",
        wait=0.02,
        **options,
    )


ENTRIES = {
    "plain": entry("plain", ttl=60),
    "versioned": entry("versioned", ttl=60, versioned=True),
    "stale": entry("stale", ttl=0.02, stale=60),
}


class Reads(RuleBasedStateMachine):
    """One value, its writer, and readers of which some are slow."""

    entry: CacheEntry[int]
    wire: Proxy
    client: redis.Redis
    #: Whether the cache may go away or lose keys, and records may be applied.
    mishaps = True

    def __init__(self) -> None:
        super().__init__()
        self.wire.heal()
        self.client.flushdb()
        InvalidationRecord.objects.all().delete()
        Counter.objects.update_or_create(name="a", defaults={"value": 0})
        self._breaker_closes()
        self.committed = 0
        #: Every read that starts from now on returns this version or a later one.
        self.acknowledged = 0
        self.paused: list[Paused] = []
        self.is_down = False

    @rule()
    def read(self) -> None:
        floor = self.acknowledged
        value = self.entry.get(name="a")
        self._check(value, floor)

    @precondition(lambda self: len(self.paused) < 3)
    @rule()
    def miss_and_pause(self) -> None:
        self.expire("")
        reader = Paused(self.acknowledged)

        def get() -> int | None:
            _example.paused = reader
            return self.entry.get(name="a")

        reader.answer = in_thread(get)
        wait_until(lambda: reader.reached.is_set() or reader.answer.done(), every=0.002)
        self.paused.append(reader)
        if reader.answer.done():
            self._finish(reader)

    @precondition(lambda self: self.paused)
    @rule(which=sampled_from(range(3)))
    def go_on(self, which: int) -> None:
        self._finish(self.paused[which % len(self.paused)])
        self.read()

    @rule(everything=sampled_from([False, False, True]))
    def write_and_commit(self, everything: bool) -> None:
        self.wire.requests.clear()
        with transaction.atomic():
            Counter.objects.filter(name="a").update(value=F("value") + 1)
            if everything and self.entry.version_key:
                self.entry.invalidate_all()
            else:
                self.entry.invalidate(name="a")
        self.committed += 1
        if any(b"\r\nDEL\r\n" in request for request in self.wire.requests):
            self.acknowledged = self.committed

    @precondition(lambda self: self.mishaps)
    @rule()
    def write_and_roll_back(self) -> None:
        with pytest.raises(Failure), transaction.atomic():
            self._write_and_fail()

    def _write_and_fail(self) -> None:
        Counter.objects.filter(name="a").update(value=F("value") + 1)
        self.entry.invalidate(name="a")
        raise Failure

    @precondition(lambda self: self.mishaps and not self.is_down)
    @rule(now=sampled_from([True, False, False]))
    def cache_down(self, now: bool) -> None:
        if not now:
            return  # or it would be down half of the time
        self.wire.black_hole()
        self.is_down = True

    @precondition(lambda self: self.is_down)
    @rule()
    def cache_up(self) -> None:
        self.wire.heal()
        self.is_down = False
        self._breaker_closes()

    @precondition(lambda self: self.mishaps)
    @rule()
    def flush(self) -> None:
        self.client.flushdb()

    @precondition(lambda self: self.mishaps)
    @rule(what=sampled_from(["", "!fill"]))
    def expire(self, what: str) -> None:
        self.client.delete(f"sekali:1:{self.entry.key(name='a')}{what}")

    @precondition(lambda self: self.mishaps)
    @rule()
    def repair(self) -> None:
        make_due()
        records.apply_due()
        if not InvalidationRecord.objects.exists():
            self.acknowledged = self.committed

    def teardown(self) -> None:
        self.wire.heal()
        for reader in list(self.paused):
            self._finish(reader)

    def _finish(self, reader: Paused) -> None:
        self.paused.remove(reader)
        reader.gate.set()
        self._check(reader.answer.result(10), reader.floor)

    def _check(self, value: int | None, floor: int) -> None:
        assert value is not None
        assert value <= self.committed
        assert value >= floor, "older than what was acknowledged"

    def _breaker_closes(self) -> None:
        wait_until(lambda: not breaker_for(self.wire.url).is_open, every=0.005)


@pytest.fixture
def machine(source: None, cache_server: ValkeyServer, settings: Settings) -> Iterator[type[Reads]]:
    settings.CACHE_REST = 0.02
    with Proxy(cache_server.url) as wire, cache_server.client() as client:
        cache = {**settings.CACHES["default"], "LOCATION": wire.url}
        cache["OPTIONS"] = {**cache["OPTIONS"], "SOCKET_TIMEOUT": 0.05}
        settings.CACHES = {"default": cache}
        yield type("Machine", (Reads,), {"wire": wire, "client": client})
        caches.close_all()


def run(machine: type[Reads], entry: CacheEntry[int], examples: int, steps: int = 50) -> None:
    machine.entry = entry
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # a run against the clock does not shrink
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_no_read_is_older_than_an_acknowledged_invalidation(
    machine: type[Reads], name: str
) -> None:
    """E2 E3 E4 E7"""
    run(machine, ENTRIES[name], 6)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ENTRIES)
def test_no_read_is_older_than_an_acknowledged_invalidation_for_long(
    machine: type[Reads], name: str
) -> None:
    """E2 E3 E4 E7"""
    run(machine, ENTRIES[name], 150)


def test_without_the_token_some_order_of_events_breaks_it(machine: type[Reads]) -> None:
    """E3 I2: the negative control; short, and without mishaps, which hide most wrong orders."""
    machine.mishaps = False
    with unguarded(), pytest.raises(AssertionError, match="older than"):
        run(machine, ENTRIES["plain"], 400, steps=10)
