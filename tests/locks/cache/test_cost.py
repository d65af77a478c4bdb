"""What a hit costs beside a bare django-redis ``get`` of the same value."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from django.core.cache import cache

from locks.cache import CacheEntry
from tests.lab.services import ValkeyServer

VALUE = {
    "revision": 7,
    "version": 12,
    "items": [{"sku": f"sku-{number}", "quantity": number} for number in range(10)],
}


def load(owner: int) -> dict[str, Any]:
    return VALUE


ENTRY: CacheEntry[dict[str, Any]] = CacheEntry(
    "cost", key="{owner}", load=load, ttl=600, tolerates=600, source="constant"
)
VERSIONED: CacheEntry[dict[str, Any]] = CacheEntry(
    "cost-versioned",
    key="{owner}",
    load=load,
    ttl=600,
    tolerates=600,
    source="constant",
    versioned=True,
)


def test_a_hit_costs_at_most_a_tenth_more_than_a_bare_get(
    cache_server: ValkeyServer, django_db_blocker: Any
) -> None:
    """E2: in one run, in turn, so that a busy machine hurts both; the median of rounds."""

    def bare() -> Any:
        return cache.get("bare:42")

    def ours() -> Any:
        return ENTRY.get(owner=42)

    cache.set("bare:42", VALUE, 600)
    assert ours() == bare() == VALUE
    ratios = [timed(ours) / timed(bare) for _ in range(30)]
    assert statistics.median(ratios) < 1.10, sorted(ratios)


def test_a_hit_touches_no_database(cache_server: ValkeyServer) -> None:
    """E2: this test has no access to one."""
    assert ENTRY.get(owner=1) == VALUE
    assert VERSIONED.get(owner=1) == VALUE


def timed(read: Callable[[], Any], times: int = 100) -> float:
    began = time.perf_counter()
    for _ in range(times):
        read()
    return time.perf_counter() - began
