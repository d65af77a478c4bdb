"""A broker that goes away under workers that are idle, and under workers that are busy."""

import threading
from collections.abc import Callable

import psutil
import pytest

from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND
from tests.operations.brokers.conftest import Platform

pytestmark = pytest.mark.req("B1", "B12", "I1")


def kill_and_restart(platform: Platform) -> None:
    platform.server.kill()
    platform.server.start()


def freeze_for_a_while(platform: Platform) -> None:
    platform.server.stop()
    threading.Event().wait(3)  # nobody can tell from outside that it has been noticed
    platform.server.cont()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("outage", [kill_and_restart, freeze_for_a_while])
def test_workers_outlive_their_broker(
    platform: Platform, outage: Callable[[Platform], None], busy: bool
) -> None:
    """B1 B12 I1: the same main process goes on, and what ran meanwhile ran once."""
    stack = platform.stack
    stack.start(apis=0, sandbox=False)
    platform.works()
    worker = stack.workers[0]
    before = psutil.Process(worker.pid)
    ids = [accept(KIND, script=["sleep:3"]) for _ in range(2)] if busy else []
    if busy:
        wait_until(lambda: Operation.objects.filter(state="running").count() == 2)
    outage(platform)
    platform.works(timeout=30)
    for id in ids:
        wait_until(lambda id=id: Operation.objects.get(pk=id).state == "done")  # type: ignore[misc]
        assert Effect.objects.filter(operation_id=id).count() == 1
        assert Attempt.objects.filter(operation_id=id).count() == 1
    assert before.is_running()
    assert worker.pid == before.pid
