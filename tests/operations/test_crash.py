"""Death of a process at every named point between acceptance and ending."""

import os
import re
import signal
import uuid
from pathlib import Path

import pytest
from django.conf import settings

from locks import Lease
from operations.crashpoints import POINTS
from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.crash import Crash
from tests.lab.processes import Process, Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

WORKER_POINTS = (
    "claim.made",
    "lease.acquired",
    "handler.returned",
    "settle.committed",
    "attempt.over",
)
KINDS = ("scripted.local", "scripted.split")


def done_once(id: uuid.UUID, *, timeout: float = 20) -> None:
    """Wait until the operation is done; its effect must be there exactly once."""
    wait_until(
        lambda: Operation.objects.get(pk=id).state == "done",
        timeout=timeout,
        message=f"{id} is not done",
    )
    assert Effect.objects.filter(operation_id=id, label="x").count() == 1
    assert Effect.objects.filter(operation_id=id, label="reserved").count() <= 1
    assert Attempt.objects.filter(operation_id=id, outcome="done").count() == 1


def revive(process: Process) -> None:
    """What a supervisor would do."""
    wait_until(lambda: not process.is_running, message=f"{process.name} was to die")
    process.discard()
    process.start()


def test_a_worker_child_dies_at_every_point(stack: Stack) -> None:
    """B1 B2 I1: the effect happens once, and soon: the main process tells of the death."""
    crash = Crash(stack)
    stack.start(apis=0, workers=0, sandbox=False)
    # Celery needs some seconds to replace a child; enough of them need not wait for it.
    stack.add_worker(concurrency=len(WORKER_POINTS) * len(KINDS) + 1)
    for point in WORKER_POINTS:
        for kind in KINDS:
            crash.arm(point)
            id = accept(kind, on=f"{point}-{kind}", label="x")
            crash.wait(point)
            done_once(id)


@pytest.mark.full
def test_a_whole_worker_dies_at_every_point(stack: Stack) -> None:
    """B1 B2 I1: as when a host dies; the claim's TTL brings the operation back."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False)
    for point in WORKER_POINTS:
        crash.arm(point, "kill-parent")
        id = accept("scripted.split", on=point, label="x")
        crash.wait(point)
        revive(stack.workers[0])
        done_once(id)


def test_a_worker_dies_with_a_message_in_its_hand(stack: Stack) -> None:
    """A7 B1 I1: taken from the queue, and not yet given to a child."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False)
    crash.arm("message.taken")
    id = accept("scripted.split", on="r", label="x")
    crash.wait("message.taken")
    revive(stack.workers[0])
    done_once(id)


@pytest.mark.full
def test_a_dispatcher_dies_at_every_point(stack: Stack) -> None:
    """A7 B1 I1: what it had taken and not sent is found to be lost, and sent again."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False)
    dispatcher = stack.dispatchers[0]
    for point in ("dispatch.taken", "dispatch.published"):
        crash.arm(point)
        id = accept(publish=False, label="x")
        crash.wait(point)
        revive(dispatcher)
        done_once(id)
    # Rescued, but the lease of the lost attempt is still held.
    crash.arm("lease.acquired", "kill-parent")
    id = accept(on="r", label="x")
    crash.wait("lease.acquired")
    crash.arm("rescue.committed")
    crash.wait("rescue.committed")
    revive(dispatcher)
    revive(stack.workers[0])
    done_once(id)
    # The broker forgot everything, and the dispatcher died while it saw to that.
    stack.scale_workers(0)
    ids = [accept(label="x") for _ in range(20)]
    crash.arm("broker.forgotten")
    stack.lab.broker.flush()
    crash.wait("broker.forgotten")
    revive(dispatcher)
    stack.scale_workers(1)
    for id in ids:
        done_once(id)


def test_a_worker_stopped_past_its_ttl_comes_back_and_changes_nothing(stack: Stack) -> None:
    """B4 D2 I1: its successor has finished by then."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False, workers=2)
    crash.arm("handler.returned", "stop")
    id = accept("scripted.local", on="r", label="x")
    stopped = crash.wait("handler.returned")
    done_once(id)
    _continue(stopped)
    wait_until(
        lambda: any("attempt lost" in worker.output() for worker in stack.workers),
        message="the stopped worker was to notice that it lost its claim",
    )
    done_once(id)
    assert list(
        Attempt.objects.filter(operation_id=id).order_by("epoch").values_list("outcome", flat=True)
    ) == ["lost", "done"]


def test_a_long_attempt_keeps_its_claim_and_lease(stack: Stack) -> None:
    """B4: longer than the TTL of both, without being rescued."""
    stack.start(apis=0, sandbox=False)
    assert settings.SEKALI_CLAIM_TTL < 5
    id = accept(script=["sleep:5"], on="r", label="x")
    done_once(id)
    assert Attempt.objects.get(operation_id=id).outcome == "done"


def _continue(pid: int) -> None:

    os.kill(pid, signal.SIGCONT)


def test_every_crash_point_is_in_the_code_and_in_a_test() -> None:
    """I1: a point nobody visits proves nothing."""
    code = "\n".join(
        path.read_text()
        for app in ("operations", "inventory", "purchases", "locks")
        for path in Path(settings.BASE_DIR, app).rglob("*.py")
    )
    tests = "\n".join(path.read_text() for path in Path(settings.BASE_DIR, "tests").rglob("*.py"))
    assert sorted(set(re.findall(r'\breach\("([^"]+)"\)', code))) == sorted(POINTS)
    assert [point for point in POINTS if f'"{point}"' not in tests] == []


@pytest.mark.parametrize("what", ["kill", "stop", "kill-parent"])
def test_a_crash_point_is_inert_without_its_directory(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside tests nothing is looked up, whatever lies in the working directory."""
    from operations import crashpoints

    monkeypatch.chdir(tmp_path)
    (tmp_path / "claim.made").write_text(what)
    crashpoints.reach("claim.made")
    assert (tmp_path / "claim.made").exists()


def test_a_flushed_lease_server_does_not_end_an_attempt(stack: Stack) -> None:
    """B4 D2 I1: the row is the claim; the lease is taken again."""
    stack.start(apis=0, sandbox=False)
    id = accept(script=["sleep:4"], on="r", label="x")
    wait_until(lambda: Operation.objects.get(pk=id).state == "running")
    stack.lab.locks.flush()
    done_once(id)
    assert Attempt.objects.get(operation_id=id).outcome == "done"
    with stack.lab.locks.client() as client:
        wait_until(lambda: not client.keys("*r*lease*") and not client.keys("*lease*r"))


def test_an_attempt_whose_lease_went_to_others_leaves_uncounted(stack: Stack) -> None:
    """B4 D2: it waits until they are through, and is made again."""
    stack.start(apis=0, sandbox=False)
    id = accept("scripted.split", script=["sleep:3"], on="r", label="x")
    wait_until(lambda: Operation.objects.get(pk=id).state == "running")
    stack.lab.locks.flush()
    other = Lease("r", ttl=4, owner="other code")
    assert other.acquire()
    wait_until(lambda: Operation.objects.get(pk=id).deferrals > 0, timeout=15)
    other.release()
    done_once(id)
    assert list(Attempt.objects.filter(operation_id=id).values_list("outcome", flat=True)) == [
        "done"
    ]
