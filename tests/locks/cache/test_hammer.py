"""Readers and writers of one key at the same time, as fast as they can."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction

from locks.cache import CacheEntry, records
from tests.lab.proxy import Proxy
from tests.lab.scripted.models import Counter
from tests.locks.cache.shelf import in_thread, make_due
from tests.locks.cache.unguarded import unguarded

READERS = 6


def load(name: str) -> int:
    value = Counter.objects.values_list("value", flat=True).get(name=name)
    time.sleep(0.001)  # so that a write comes in between now and then
    return value


def entry(name: str, **options: Any) -> CacheEntry[int]:
    return CacheEntry(
        f"hammer-{name}",
        key="{name}",
        load=load,
        **{"ttl": 60, "tolerates": 600, "source": "scripted_counter", **options},
    )


ENTRIES = {
    "plain": entry("plain"),
    "versioned": entry("versioned", versioned=True),
    "stale": entry("stale", ttl=0.005, stale=60),
}


class Hammer:
    """One writer; readers that compare what they are told with what they know."""

    def __init__(self, entry: CacheEntry[int]) -> None:
        self.entry = entry
        #: What every read that begins from now on must at least return.
        self.acknowledged = 0
        self.too_old: list[tuple[int, int]] = []
        self.took: list[float] = []
        self._over = threading.Event()

    def write(self) -> None:
        """Count up and invalidate, in one way or the other."""
        with transaction.atomic():
            Counter.objects.filter(name="a").update(value=self.acknowledged + 1)
            if self.entry.version_key and self.acknowledged % 3 == 0:
                self.entry.invalidate_all()
            else:
                self.entry.invalidate(name="a")
        self.acknowledged += 1

    def _read(self) -> None:
        while not self._over.is_set():
            floor, began = self.acknowledged, time.perf_counter()
            value = self.entry.get(name="a")
            self.took.append(time.perf_counter() - began)
            if value is None or value < floor:
                self.too_old.append((floor, value or 0))

    @contextmanager
    def readers(self) -> Iterator[None]:
        going = [in_thread(self._read) for _ in range(READERS)]
        try:
            yield
        finally:
            self._over.set()
            for reader in going:
                reader.result(30)


@pytest.fixture(autouse=True)
def _counter(source: None, wire: Proxy) -> None:
    Counter.objects.create(name="a", value=0)


@pytest.mark.parametrize("name", ENTRIES)
def test_no_reader_is_told_what_was_invalidated_before_it_asked(name: str) -> None:
    """E3 E5: nor is one kept waiting by frequent writes."""
    hammer = Hammer(ENTRIES[name])
    with hammer.readers():
        for number in range(150):
            hammer.write()
            if number % 50 == 0:
                make_due()
                records.apply_due()
            time.sleep(0.002 * (number % 3))
    assert hammer.too_old == []
    assert len(hammer.took) > READERS
    assert sorted(hammer.took)[len(hammer.took) // 2] < hammer.entry.wait / 2


def test_without_the_token_some_reader_is() -> None:
    """E3 I2: the negative control."""
    hammer = Hammer(ENTRIES["plain"])
    deadline = time.monotonic() + 20
    with unguarded(), hammer.readers():
        while not hammer.too_old and time.monotonic() < deadline:
            hammer.write()
            time.sleep(0.01)
    assert hammer.too_old
