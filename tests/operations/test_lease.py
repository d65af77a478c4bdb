"""An attempt and the lease on its resource, which other code may hold and a server may lose."""

import uuid

import pytest

from locks import Lease
from locks.held import held_leases
from operations import verbs
from operations.models import Attempt, DeadLetter, Operation
from tests.lab.accepting import accept, owner
from tests.lab.processes import Stack
from tests.lab.waiting import wait_until


def wait_done(id: uuid.UUID, timeout: float = 20) -> Operation:
    def row() -> Operation | None:
        found = Operation.objects.get(pk=id)
        return found if found.finished_at else None

    ended = wait_until(row, timeout=timeout)
    assert ended is not None
    assert ended.state == "done"
    return ended


def wait_deferred(id: uuid.UUID) -> Operation:
    wait_until(
        lambda: Operation.objects.filter(pk=id, state="pending", deferrals__gt=1).exists(),
        timeout=20,
        message="it is not deferred",
    )
    return Operation.objects.get(pk=id)


def test_while_other_code_holds_the_lease_an_operation_waits_uncounted(stack: Stack) -> None:
    """D1 D2 B1: it leaves no trace of a claim, so one of them can still be cancelled."""
    stack.start(apis=0, sandbox=False)
    other = Lease("r", ttl=60, owner="other code")
    assert other.acquire()
    id = accept(on="r")
    row = wait_deferred(id)
    assert (row.attempts, row.losses, row.bugs) == (0, 0, 0)
    assert not Attempt.objects.exists()
    cancelled = accept(on="r")
    wait_deferred(cancelled)
    wait_until(lambda: verbs.cancel(cancelled, owner=owner(), versions=None), timeout=10)
    other.release()
    assert wait_done(id).attempts == 1
    assert not DeadLetter.objects.exists()


def test_a_lease_that_others_never_give_back_ends_as_a_dead_letter(stack: Stack) -> None:
    """C2 D1: category lock, naming the resource; and no attempt is counted for it."""
    stack.env["SEKALI_DEFER_LIMIT"] = "1"
    stack.start(apis=0, sandbox=False)
    assert Lease("r", ttl=60, owner="other code").acquire()
    id = accept(on="r")
    wait_until(lambda: Operation.objects.get(pk=id).state == "dead", timeout=20)
    letter = DeadLetter.objects.get(operation=id)
    assert (letter.category, letter.error_type) == ("lock", "DeferredTooLong")
    assert "the lease on r" in letter.message


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_while_the_lease_server_is_away_operations_wait_uncounted(stack: Stack, how: str) -> None:
    """D2 I1: dead or frozen; those without a resource go on."""
    stack.start(apis=0, sandbox=False)
    getattr(stack.lab.locks, how)()
    id, without = accept(on="r"), accept()
    assert wait_done(without).attempts == 1
    assert wait_deferred(id).attempts == 0
    stack.lab.locks.recover()
    assert wait_done(id).attempts == 1


def test_the_lease_of_a_lost_attempt_does_not_hold_up_the_next(stack: Stack) -> None:
    """D1 B8: whoever takes back the claim frees its lease, long before its TTL is over."""
    stack.start(apis=0, sandbox=False)
    row = wait_done(accept(on="r", script=["kill", "ok"]))
    assert (row.losses, row.deferrals) == (1, 0)
    wait_until(Lease("r", ttl=5, owner="next").acquire, timeout=2)


def test_with_leases_in_rows_no_lease_server_is_needed(stack: Stack) -> None:
    """D3 B4: kept by the heartbeat, seen, and freed by a rescue."""
    stack.env["LOCKS_BACKEND"] = "postgres"
    stack.start(apis=0, sandbox=False)
    stack.lab.locks.kill()
    kept, lost = accept(on="r", script=["sleep:4"]), accept(on="s", script=["kill", "ok"])
    (seen,) = (
        wait_until(lambda: [held for held in held_leases("postgres") if held.key == "r"]) or []
    )
    assert seen.owner.startswith(f"{kept}:")
    assert wait_done(lost).deferrals == 0
    assert wait_done(kept).attempts == 1
    wait_until(lambda: not held_leases("postgres"))
