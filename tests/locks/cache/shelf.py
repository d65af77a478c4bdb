"""Something in the database that is cached, and a look at both."""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from locks.cache import CacheEntry
from tests.lab.scripted.models import Counter

_numbers = itertools.count()


class Failure(Exception):
    """What makes a transaction roll back."""


class Shelf:
    """The value of a counter for each name, cached under ``entry``.

    ``loads`` is what was loaded, in order. A load can be held up: between the statement
    that reads and the return, for the ``gate`` to open.
    """

    def __init__(self, **options: Any) -> None:
        self.loads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.error: Exception | None = None

        def load(name: str) -> int | None:
            return self._load([name])[0]

        def load_many(many: Sequence[Mapping[str, Any]]) -> list[int | None]:
            return self._load([dimensions["name"] for dimensions in many])

        self.entry: CacheEntry[int] = CacheEntry(
            f"shelf-{next(_numbers)}",
            **{
                "key": "{name}",
                "load": load,
                "load_many": load_many,
                "ttl": 60,
                "tolerates": 600,
                "source": "scripted_counter",
                **options,
            },
        )

    def _load(self, names: list[str]) -> list[int | None]:
        if self.error is not None:
            raise self.error
        values = dict(Counter.objects.filter(name__in=names).values_list("name", "value"))
        self.loads += names
        self.reached.set()
        assert self.gate.wait(20)
        return [values.get(name) for name in names]

    def put(self, name: str = "a", value: int = 1) -> None:
        """Change the counter without a word to the cache."""
        Counter.objects.update_or_create(name=name, defaults={"value": value})

    def count_up(self, name: str = "a") -> None:
        """Write, commit, invalidate."""
        with transaction.atomic():
            Counter.objects.filter(name=name).update(value=F("value") + 1)
            self.entry.invalidate(name=name)

    def write_and_fail(self, name: str = "a", value: int = 2) -> None:
        """Write, invalidate and roll back. Raises :class:`Failure`."""
        with transaction.atomic():
            self.put(name, value)
            self.entry.invalidate(name=name)
            raise Failure

    def get(self, name: str = "a") -> int | None:
        return self.entry.get(name=name)

    def held_up(self, reader: Callable[[], Any] | None = None) -> "Future[Any]":
        """A read in another thread that has read its source and waits for the gate."""
        self.gate.clear()
        self.reached.clear()
        future = in_thread(reader or self.get)
        assert self.reached.wait(5)
        return future


def in_thread(function: Callable[[], Any]) -> "Future[Any]":
    """Run it in a thread whose database connection is closed afterwards."""

    def run() -> Any:
        try:
            return function()
        finally:
            connection.close()

    executor = ThreadPoolExecutor(1)
    future = executor.submit(run)
    executor.shutdown(wait=False)
    return future


def make_due() -> None:
    """Have all records be due now."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE locks_invalidation SET due_at = now() - interval '1 second'")
