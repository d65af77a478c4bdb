"""Deploys: processes that are asked to leave, and killed if they do not."""

import time

import pytest

from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B2", "I1")


def test_a_worker_lets_short_attempts_end_and_hands_long_ones_back(stack: Stack) -> None:
    """B2: SIGTERM; what ends within the grace is done, the rest is handed back uncounted."""
    stack.env["SEKALI_SHUTDOWN_GRACE"] = "2"
    stack.start(apis=0, sandbox=False)
    short, long = accept(script=["sleep:1"]), accept(script=["sleep:60", "ok"])
    wait_until(lambda: Operation.objects.filter(state="running").count() == 2)
    started = time.monotonic()
    code = stack.workers[0].terminate(timeout=10)
    took = time.monotonic() - started
    assert code == 0
    assert 2 <= took < 6
    assert Operation.objects.get(pk=short).state == "done"
    back = Operation.objects.get(pk=long)
    assert (back.state, back.attempts, back.losses) == ("pending", 0, 0)
    assert not Attempt.objects.filter(operation_id=long).exists()
    stack.workers[0].start()
    # Its first counted attempt, so the script begins anew.
    wait_until(lambda: Operation.objects.get(pk=long).state == "running", timeout=10)


def test_a_worker_that_has_nothing_to_do_leaves_at_once(stack: Stack) -> None:
    """B2: the grace is an upper bound."""
    stack.env["SEKALI_SHUTDOWN_GRACE"] = "60"
    stack.start(apis=0, sandbox=False)
    # Less than the grace by far, however busy the machine is.
    assert stack.workers[0].terminate(timeout=20) == 0


def test_rolling_deploys_under_load_lose_and_double_nothing(stack: Stack) -> None:
    """B2 I1: workers and dispatchers leave in turn, some killed after their grace."""
    stack.env["SEKALI_SHUTDOWN_GRACE"] = "0.5"
    stack.start(apis=0, sandbox=False, workers=2, dispatchers=2)
    ids = []
    for round in range(2):
        ids += [accept(publish=n % 3 > 0, script=["sleep:0.05"]) for n in range(40)]
        ids += [accept("scripted.split", script=["sleep:1"]) for _ in range(2)]
        for process in (stack.workers[round % 2], stack.dispatchers[round % 2]):
            process.terminate(timeout=10)
            process.start()
        killed = stack.workers[(round + 1) % 2]
        killed.kill()
        killed.start()
    wait_until(
        lambda: Operation.objects.filter(id__in=ids, state="done").count() == len(ids),
        timeout=60,
        message="some operations are lost",
    )
    doubled = [id for id in ids if Effect.objects.filter(operation_id=id, label="").count() != 1]
    assert doubled == []
