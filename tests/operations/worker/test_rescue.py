"""A worker's child that is killed."""

import os
import signal
import time

import pytest

from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

KILLS = 20
#: Seconds from the kill to the row that says so.
PROMPT = 2.0


@pytest.mark.req("B2", "I1")
def test_a_killed_child_is_noticed_at_once_twenty_times(stack: Stack) -> None:
    """B2 I1: on the main process's own evidence, not on Celery's timer of five seconds."""
    stack.start(apis=0, sandbox=False)
    took = []
    for _ in range(KILLS):
        id = accept(script=["sleep:30", "ok"], on="r")
        wait_until(lambda id=id: Operation.objects.get(pk=id).state == "running")  # type: ignore[misc]
        claimed_by = Operation.objects.get(pk=id).claimed_by
        os.kill(int(claimed_by.partition("/")[2].partition(".")[0]), signal.SIGKILL)
        killed = time.monotonic()
        wait_until(
            lambda id=id: Attempt.objects.filter(operation_id=id, outcome="lost").exists(),  # type: ignore[misc]
            timeout=10,
        )
        took.append(time.monotonic() - killed)
        wait_until(lambda id=id: Operation.objects.get(pk=id).state == "done")  # type: ignore[misc]
        assert Effect.objects.filter(operation_id=id).count() == 1
    assert max(took) < PROMPT, took
