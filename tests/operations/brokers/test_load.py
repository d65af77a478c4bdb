"""Thousands of operations while things are killed and cut; lost none, doubled none."""

import random
import threading
import time
import uuid

import psutil
import pytest

from operations.models import Operation
from tests.lab.accepting import accept, owner
from tests.lab.rabbitmq import RabbitServer
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND
from tests.operations.brokers.conftest import Platform

pytestmark = [
    pytest.mark.req("B1", "B2", "B12", "I1"),
    pytest.mark.full,
    pytest.mark.timeout(400),
]


#: In the test that kills workers; about what is done meanwhile.
OPERATIONS = 2_000


def load(count: int) -> list[uuid.UUID]:
    """Operations, some published by us and some left to the dispatcher."""
    user = owner()
    return [
        accept(KIND, publish=n % 4 != 0, user=user, script=["sleep:0.01"]) for n in range(count)
    ]


def ledger(ids: list[uuid.UUID], timeout: float) -> None:
    done = Operation.objects.filter(id__in=ids, state="done")
    wait_until(
        lambda: done.count() == len(ids), timeout=timeout, message="some are lost", every=0.2
    )
    effects = Effect.objects.filter(operation_id__in=ids)
    assert effects.count() == effects.values("operation_id").distinct().count() == len(ids)


def settled(platform: Platform) -> None:
    """Nothing is left behind in the broker."""
    wait_until(lambda: platform.ready(KIND) == 0, timeout=30)


def test_worker_mains_are_killed_fifteen_times(platform: Platform) -> None:
    """B2: with kill -9, now this one, now that one, and started again."""
    platform.stack.env["SEKALI_MAX_LOSSES"] = "10"
    platform.stack.start(apis=0, sandbox=False, workers=2)
    killed = 0

    def kill_now_and_then() -> None:
        nonlocal killed
        while killed < 15:
            time.sleep(0.5)
            worker = random.choice(platform.stack.workers)
            if "ready." in worker.output():
                worker.kill()
                worker.start(wait=False)
                killed += 1

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    ids: list[uuid.UUID] = []
    while killer.is_alive():
        if len(ids) < OPERATIONS:
            ids += load(50)
        else:
            killer.join(0.5)
    ids += load(50)
    assert killed == 15
    ledger(ids, timeout=200)
    settled(platform)


def test_connections_are_cut_twenty_times(platform: Platform) -> None:
    """B12: those of workers and dispatchers alike; nobody has to be started again."""
    platform.stack.start(apis=0, sandbox=False, workers=2)
    before = [psutil.Process(worker.pid) for worker in platform.stack.workers]
    ids: list[uuid.UUID] = []
    for _ in range(20):
        ids += load(50)
        cut_connections(platform)
    ledger(ids, timeout=120)
    assert all(process.is_running() for process in before)
    settled(platform)


def cut_connections(platform: Platform) -> None:
    if isinstance(platform.server, RabbitServer):
        platform.server.ctl("close_all_connections", "a test")
        return
    with platform.server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


def test_the_broker_is_killed_under_busy_workers(platform: Platform) -> None:
    """B12 I1: and comes back, each time with what it had written down."""
    platform.stack.start(apis=0, sandbox=False, workers=2)
    before = [psutil.Process(worker.pid) for worker in platform.stack.workers]
    ids: list[uuid.UUID] = []
    for _ in range(2):
        ids += load(300)
        platform.server.kill()
        platform.server.start()
    ids += load(100)
    ledger(ids, timeout=120)
    assert all(process.is_running() for process in before)
    settled(platform)
