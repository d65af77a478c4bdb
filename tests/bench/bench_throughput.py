"""Operations per second and per core, on both brokers (``make bench``).

What is measured is a kind with one local effect: a message is taken, the operation
claimed, one row inserted and the operation settled in the same transaction. The queue is
full before a worker starts, so that nobody waits for arrivals.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from django.db import connection

from operations.models import Operation
from tests.lab.accepting import backlog, owner
from tests.lab.processes import Process
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND
from tests.operations.brokers.conftest import Platform

pytestmark = pytest.mark.timeout(300)

OPERATIONS = 4_000


def processor_time(pid: int) -> tuple[float, float]:
    """Seconds that a process has used so far, and those that it started."""
    process = psutil.Process(pid)
    own, *others = (
        times.user + times.system
        for times in (one.cpu_times() for one in (process, *process.children(recursive=True)))
    )
    return own, sum(others)


@contextmanager
def measured(**eldest: int) -> Iterator[Callable[[], dict[str, tuple[float, float]]]]:
    """The same for processes by their names, while this lasts."""
    before = {name: processor_time(pid) for name, pid in eldest.items()}
    spent: dict[str, tuple[float, float]] = {}
    yield lambda: spent
    for name, pid in eldest.items():
        own, others = processor_time(pid)
        spent[name] = own - before[name][0], others - before[name][1]


def publish_all(platform: Platform) -> float:
    """Have operations sent by a dispatcher; returns how many it sent in a second."""
    backlog(OPERATIONS, KIND, user=owner())
    platform.stack.start(apis=0, sandbox=False, workers=0, dispatchers=1)
    unsent = Operation.objects.filter(sent_at=None)
    wait_until(lambda: unsent.count() < OPERATIONS, every=0.01)
    started, left = time.monotonic(), unsent.count()
    wait_until(lambda: unsent.count() == 0, timeout=120, every=0.01)
    return left / (time.monotonic() - started)


@pytest.mark.parametrize("events", ["", "events"])
@pytest.mark.parametrize(("mains", "children"), [(1, 1), (1, 4), (2, 2)])
def bench_worker(
    platform: Platform,
    events: str,
    mains: int,
    children: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the first claim to the last end."""
    stack = platform.stack
    stack.env["WORKER_EVENTS"] = "1" if events else "0"
    sent = publish_all(platform)
    workers: list[Process] = [
        stack.add_worker(concurrency=children, wait=False) for _ in range(mains)
    ]
    for worker in workers:
        wait_until(lambda worker=worker: "ready." in worker.output())  # type: ignore[misc]
    families = {f"worker{n}": worker.pid for n, worker in enumerate(workers)}
    with measured(postgres=stack.lab.postgres.pid, broker=platform.server.pid, **families) as spent:
        done = Operation.objects.filter(state="done")
        wait_until(lambda: done.count() == OPERATIONS, timeout=200, every=0.05)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM max(finished_at) - min(started_at)) "
            "FROM operations_operation"
        )
        ((seconds,),) = cursor.fetchall()
    used = spent()
    of_mains = sum(used[name][0] for name in families)
    of_children = sum(used[name][1] for name in families)
    postgres, broker = sum(used["postgres"]), sum(used["broker"])
    each = 1e6 / OPERATIONS
    with capsys.disabled():
        print(  # noqa: T201
            f"\n| {'redis' if platform.is_redis else 'rabbitmq'} | {events or '-'} "
            f"| {mains} of {children} | {OPERATIONS / float(seconds):.0f} "
            f"| {OPERATIONS / (of_mains + of_children + postgres + broker):.0f} "
            f"| {of_mains * each:.0f} | {of_children * each:.0f} | {postgres * each:.0f} "
            f"| {broker * each:.0f} | {sent:.0f} |"
        )
