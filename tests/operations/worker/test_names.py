"""Operators read in the list of leases which process of the platform holds one."""

from locks import process
from locks.held import held_leases
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.waiting import wait_until


def test_a_lease_shows_the_worker_that_holds_it(stack: Stack) -> None:
    """D4: its node name, the child's pid, and the operation with its claim as the owner."""
    stack.start(apis=0, dispatchers=0, sandbox=False)
    id = accept(on="r", script=["sleep:5"])
    (seen,) = wait_until(held_leases, timeout=15) or []
    assert seen.process == f"worker-1@{process.HOST}"
    assert seen.owner.startswith(f"{id}:")
    assert seen.pid in {child.pid for child in stack.workers[0].children()}
    assert f"worker-1@{process.HOST}" in stack.manage("leases")


def test_other_processes_are_named_by_their_role(stack: Stack) -> None:
    """D4"""
    asked = "from locks import process; print('it is', process.name())"
    assert "it is manage" in stack.manage("shell", "--no-imports", "-c", asked)
