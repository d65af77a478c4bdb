"""A counter by name, cached: for operations that invalidate."""

from locks.cache import CacheEntry
from operations.database import persistently
from tests.lab.scripted.models import Counter


def _load(name: str) -> int | None:
    values = Counter.objects.filter(name=name).values_list("value", flat=True)
    return persistently(values.first)


COUNTER: CacheEntry[int] = CacheEntry(
    "scripted-counter", key="{name}", load=_load, ttl=60, tolerates=60, source="scripted_counter"
)
