"""Handlers that hang, kill their process, or behave badly in other ways."""

import os
import signal
import uuid

import pytest

from operations.models import Attempt, DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B8", "I1")

LOCAL, HASTY = "scripted.local", "scripted.hasty"

ENDINGS = [
    # kind, script, state, outcomes and categories of the attempts, effects
    (LOCAL, ["kill"], "dead", [("lost", "worker_lost")] * 3, 0),
    (LOCAL, ["segfault"], "dead", [("lost", "worker_lost")] * 3, 0),
    (LOCAL, ["exit", "ok"], "done", [("lost", "worker_lost"), ("done", "")], 1),
    (LOCAL, ["system-exit", "ok"], "done", [("retry", "bug"), ("done", "")], 1),
    (LOCAL, ["close", "ok"], "done", [("retry", "dependency"), ("done", "")], 1),
    (LOCAL, ["fork"], "done", [("done", "")], 1),
    (LOCAL, ["eat:300"], "done", [("done", "")], 1),
    # Within the soft limit; over it; deaf to it, so over the hard one.
    (HASTY, ["sleep:0.5"], "done", [("done", "")], 1),
    (HASTY, ["sleep:9", "ok"], "done", [("retry", "timeout"), ("done", "")], 1),
    (HASTY, ["query:9", "ok"], "done", [("retry", "timeout"), ("done", "")], 1),
    (HASTY, ["spin:9", "ok"], "done", [("retry", "timeout"), ("done", "")], 1),
    (HASTY, ["swallow:9", "ok"], "done", [("lost", "timeout"), ("done", "")], 1),
    (HASTY, ["swallow:9"], "dead", [("lost", "timeout")] * 3, 0),
]


def history(id: uuid.UUID) -> list[tuple[str, str]]:
    attempts = Attempt.objects.filter(operation_id=id).order_by("epoch")
    return list(attempts.values_list("outcome", "category"))


def test_each_ends_as_it_should_while_others_go_on(stack: Stack) -> None:
    """B8: ended soft, then hard, counted once; dead after three losses; nobody else is hurt."""
    stack.env["SEKALI_CHILD_MEMORY"] = "150"
    stack.start(apis=0, sandbox=False, workers=0)
    stack.add_worker(concurrency=4)
    ids = [accept(kind, script=script) for kind, script, *_ in ENDINGS]
    bystanders = [accept() for _ in range(20)]
    wait_until(
        lambda: Operation.objects.filter(id__in=bystanders, state="done").count() == 20,
        timeout=30,
        message="the others do not get on",
    )
    wait_until(
        lambda: not Operation.objects.filter(id__in=ids, finished_at=None).exists(), timeout=60
    )
    found = [
        (kind, script, Operation.objects.get(pk=id).state, history(id), effects(id))
        for id, (kind, script, *_) in zip(ids, ENDINGS, strict=True)
    ]
    assert found == ENDINGS
    letters = DeadLetter.objects.order_by("category").values_list("category", flat=True)
    assert list(letters) == ["timeout", "worker_lost", "worker_lost"]
    assert stack.workers[0].is_running


def effects(id: uuid.UUID) -> int:
    return Effect.objects.filter(operation_id=id).count()


def test_a_soft_limit_that_comes_late_hits_nobody(stack: Stack) -> None:
    """B8: the signal of an attempt that is over, to a child that waits or works on another."""
    stack.start(apis=0, sandbox=False)
    worker = stack.workers[0]
    before = sorted(child.pid for child in worker.children())
    for _ in range(3):
        for pid in before:
            os.kill(pid, signal.SIGUSR1)
        id = accept()
        wait_until(lambda id=id: Operation.objects.get(pk=id).state == "done")  # type: ignore[misc]
    assert sorted(child.pid for child in worker.children()) == before
