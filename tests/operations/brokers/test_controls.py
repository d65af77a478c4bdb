"""Negative controls: the same as in the other tests here, with Celery as it comes."""

import pytest

from operations.models import DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.crash import Crash
from tests.lab.processes import Process, Stack
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad, everywhere, in_lists

pytestmark = pytest.mark.req("I2", "B8")


def start_stock(stack: Stack) -> Process:
    stack.start(apis=0, sandbox=False, workers=0)
    return stack.add_worker(env={"EXTRA_APPS": "tests.lab.scripted,tests.lab.stock"})


def named(name: str) -> Bad:
    return next(bad for bad in everywhere() + in_lists() if bad.name == name)


@pytest.mark.parametrize("name", ["no JSON", "body is an object"])
def test_control_a_message_ends_a_stock_worker(stack: Stack, name: str) -> None:
    """I2: and the one after it is not reached."""
    worker = start_stock(stack)
    with stack.lab.broker.client() as client:
        client.lpush(KIND, named(name).as_item)
        wait_until(lambda: not worker.is_running, timeout=15)
    assert worker.returncode == 1


def test_control_stock_loses_what_it_cannot_read(stack: Stack) -> None:
    """I2: acknowledged or dropped, without a trace."""
    start_stock(stack)
    with stack.lab.broker.client() as client:
        client.lpush(KIND, named("bytes for a body").as_item, named("unknown task").as_item)
        wait_until(lambda: client.llen(KIND) == 0 and client.hlen("unacked") == 0, timeout=15)
        id = accept(KIND)
        wait_until(lambda: Operation.objects.get(pk=id).state == "done")
        assert client.llen("dead_letter") == 0
    assert not DeadLetter.objects.exists()


def test_control_a_message_is_lost_with_a_stock_worker(stack: Stack) -> None:
    """I2: killed between taking it and writing that down."""
    crash = Crash(stack)
    worker = start_stock(stack)
    stack.dispatchers[0].terminate()
    with stack.lab.broker.client() as client:
        crash.arm("stock.popped")
        accept(KIND)
        crash.wait("stock.popped")
        wait_until(lambda: not worker.is_running)
        assert (client.llen(KIND), client.hlen("unacked")) == (0, 0)


@pytest.mark.full
def test_ours_keeps_it(stack: Stack) -> None:
    """B8: taken and written down in one step; others get it when its time is over."""
    crash = Crash(stack)
    stack.env["SEKALI_VISIBILITY_TIMEOUT"] = "11"
    stack.start(apis=0, sandbox=False, dispatchers=0)
    with stack.lab.broker.client() as client:
        crash.arm("message.taken")
        id = accept(KIND)
        crash.wait("message.taken")
        wait_until(lambda: not stack.workers[0].is_running)
        assert (client.llen(KIND), client.hlen("sekali:unacked")) == (0, 1)
        stack.workers[0].discard()
        stack.workers[0].start()
        wait_until(lambda: Operation.objects.get(pk=id).state == "done", timeout=30)
        wait_until(lambda: client.hlen("sekali:unacked") == 0)


@pytest.mark.full
def test_control_a_busy_stock_worker_dies_with_its_broker(stack: Stack) -> None:
    """I2: the outage that ours outlives."""
    worker = start_stock(stack)
    accept(KIND, script=["sleep:5"])
    wait_until(lambda: Operation.objects.filter(state="running").exists(), timeout=15)
    stack.lab.broker.kill()
    wait_until(lambda: not worker.is_running, timeout=20)
    assert worker.returncode == 1
