"""What operators see of leases, and how they free one by force."""

import json
import os
import socket
from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from locks import Lease, LeaseLost, held, process
from locks.backend import HeldLease
from locks.held import LeaseInUse, force_release, held_leases, register_guard
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until


@pytest.fixture(autouse=True)
def guards(monkeypatch: pytest.MonkeyPatch) -> list[held.Guard]:
    """No guards but the test's own."""
    mine: list[held.Guard] = []
    monkeypatch.setattr(held, "_guards", mine)
    return mine


@pytest.fixture
def named_process() -> Iterator[None]:
    process.call_it("worker-1@here")
    yield
    process.call_it("")


def leases_command(*arguments: str) -> str:
    output = StringIO()
    call_command("leases", *arguments, stdout=output)
    return output.getvalue()


def test_a_held_lease_says_whose_it_is(store: str, named_process: None) -> None:
    """D4"""
    lease = Lease("inventory:user:42", ttl=60, owner="operation-7:3", fenced=True)
    lease.acquire()
    (seen,) = held_leases()
    assert (seen.key, seen.owner, seen.host, seen.pid, seen.process, seen.fence) == (
        "inventory:user:42",
        "operation-7:3",
        socket.gethostname(),
        os.getpid(),
        "worker-1@here",
        lease.fence,
    )
    assert 0 <= seen.age < 5
    assert 55 < seen.remaining <= 60


def test_the_oldest_comes_first_and_renewing_makes_no_younger(store: str) -> None:
    """D4"""
    first, second = Lease("z", ttl=60), Lease("a", ttl=60)
    first.acquire()
    wait_until(lambda: held_leases()[0].age > 0.1)
    second.acquire()
    first.renew()
    assert [lease.key for lease in held_leases()] == ["z", "a"]


def test_a_lease_that_ended_is_not_listed(store: str) -> None:
    """D4"""
    Lease("a", ttl=0.4).acquire()
    released = Lease("b", ttl=60)
    released.acquire()
    released.release()
    wait_until(lambda: not held_leases())


def test_thousands_are_listed_whole(locks: ValkeyServer) -> None:
    """D4"""
    for number in range(1500):
        Lease(f"key-{number}", ttl=60, owner="me").acquire()
    assert len({lease.key for lease in held_leases()}) == 1500


def test_the_command_prints_a_table_and_marks_old_ones(
    locks: ValkeyServer, settings: Settings
) -> None:
    """D4"""
    Lease("a", ttl=60, owner="me").acquire()
    header, line = leases_command().splitlines()
    assert header.split() == ["key", "owner", "host", "pid", "process", "age", "left", "fence"]
    assert line.startswith("a ")
    assert "OLD" not in line
    settings.LOCKS_OLD_AFTER = 0
    assert "OLD" in leases_command()
    assert len(leases_command("--older-than", "100").splitlines()) == 1


def test_the_command_speaks_json(locks: ValkeyServer) -> None:
    """D4"""
    Lease("a", ttl=60, owner="me").acquire()
    (row,) = json.loads(leases_command("--json"))
    assert row["key"] == "a"
    assert row["owner"] == "me"
    assert row["old"] is False


def test_a_lease_can_be_freed_by_force_with_a_reason(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D4"""
    lease = Lease("a", ttl=60, owner="me")
    lease.acquire()
    assert leases_command("--release", "a", "--reason", "host is gone").startswith("Freed a")
    assert "host is gone" in caplog.text
    with pytest.raises(LeaseLost):
        lease.renew()
    assert Lease("a", ttl=60).acquire()


def test_freeing_needs_a_reason(locks: ValkeyServer) -> None:
    """D4"""
    lease = Lease("a", ttl=60, owner="me")
    lease.acquire()
    with pytest.raises(CommandError, match="reason"):
        leases_command("--release", "a", "--reason", " ")
    lease.renew()


def test_freeing_what_nobody_holds_says_so(locks: ValkeyServer) -> None:
    """D4"""
    assert force_release("a", by="op", reason="trying") is None
    assert "Nobody holds a" in leases_command("--release", "a", "--reason", "trying")


def test_a_guard_can_refuse(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """D4"""

    @register_guard
    def running(lease: HeldLease) -> str | None:
        return "operation 7 is running" if lease.owner.startswith("operation-7") else None

    theirs, free = Lease("a", ttl=60, owner="operation-7:1"), Lease("b", ttl=60, owner="x")
    theirs.acquire()
    free.acquire()
    with pytest.raises(LeaseInUse, match="operation 7 is running"):
        force_release("a", by="op", reason="impatient")
    assert "impatient" in caplog.text
    theirs.renew()
    assert force_release("b", by="op", reason="stuck")


def test_a_holder_that_came_after_the_question_is_spared(
    locks: ValkeyServer, guards: list[held.Guard]
) -> None:
    """D4: only the holder that was looked at loses the lease."""
    old, new = Lease("a", ttl=60, owner="old"), Lease("a", ttl=60, owner="new")
    old.acquire()

    def changes_hands(_lease: HeldLease) -> str | None:
        old.release()
        new.acquire()
        return None

    guards.append(changes_hands)
    assert force_release("a", by="op", reason="stuck") is None
    new.renew()


def test_a_down_server_is_an_error_of_the_command(settings: Settings) -> None:
    """D4"""
    settings.LOCKS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(CommandError, match="cannot be reached"):
        leases_command()
