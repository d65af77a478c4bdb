"""Where the time of one attempt goes, stage by stage, in one process (``make bench``)."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from locks import Lease
from operations import executor, verbs
from operations.executor import Outcome, execute
from tests.lab.accepting import accept
from tests.lab.services import ValkeyServer
from tests.operations.brokers.bad_messages import KIND

ATTEMPTS = 1_000


class Stages:
    """Wall-clock seconds by stage."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._patch = monkeypatch

    def time(self, name: str, where: Any, attribute: str) -> None:
        """Count what a function takes from now on."""
        original: Callable[..., Any] = getattr(where, attribute)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return original(*args, **kwargs)

        self._patch.setattr(where, attribute, timed)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] += time.perf_counter() - started


@pytest.mark.parametrize("resource", ["", "each its own"])
def bench_stages(
    database: str,
    broker: ValkeyServer,
    locks: ValkeyServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    resource: str,
) -> None:
    """Without Celery: what the pipeline itself costs."""
    ids = [accept(KIND, publish=False, on=f"r{n}" if resource else "") for n in range(ATTEMPTS)]
    stages = Stages(monkeypatch)
    stages.time("claim", verbs, "claim")
    stages.time("settle", verbs, "settle")
    stages.time("lease, acquire", Lease, "acquire")
    stages.time("lease, release", Lease, "release")
    stages.time("BEGIN", connection, "_set_autocommit")
    stages.time("COMMIT", connection, "_commit")
    stages.time("validate the payload", executor, "validated")
    with stages.stage("all"):
        for id in ids:
            assert execute(id, KIND, process="bench/1.1") is Outcome.DONE
    whole = stages.spent.pop("all")
    rest = whole - sum(stages.spent.values())
    with capsys.disabled():
        print(f"\n{'with a resource' if resource else 'without a resource'}: µs an attempt")  # noqa: T201
        for name, seconds in [*stages.spent.items(), ("effect and the rest", rest), ("all", whole)]:
            print(f"| {name} | {seconds / ATTEMPTS * 1e6:.0f} |")  # noqa: T201
