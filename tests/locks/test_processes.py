"""Holders that are stopped, killed, starved or forked. All in processes of their own."""

from collections.abc import Callable

import pytest

from locks import Lease
from locks.metrics import totals
from locks.valkey.server import server_for
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.holder import Holder, in_a_child

StartHolder = Callable[[], Holder]


def test_a_process_stopped_past_its_ttl_knows_that_it_lost(holder: StartHolder) -> None:
    """D2"""
    process = holder()
    assert process.ask("enter", key="a", ttl=0.6) is None
    process.stop()
    successor = Lease("a", ttl=5, owner="successor")
    wait_until(successor.acquire, timeout=3)
    process.cont()
    assert process.ask("lost") is True
    assert process.ask("renew") == "LeaseLost"
    assert process.ask("exit") == "LeaseLost"
    successor.renew()


def test_a_process_stopped_between_request_and_answer_holds_nothing(proxy: Proxy) -> None:
    """D2: the answer says granted, and is true no more when it is read."""
    with Holder(proxy.url) as process:
        process.ask("acquire", key="warm", ttl=5)
        proxy.keep_reply(b"locks:lease:a")
        sent = len(proxy.requests)
        process.tell("acquire", key="a", ttl=2)
        wait_until(lambda: len(proxy.requests) > sent)
        process.stop()
        proxy.heal()
        successor = Lease("a", ttl=20, owner="successor")
        wait_until(successor.acquire, timeout=5)
        process.cont()
        assert process.answer() == "LeaseUnavailable"
        assert process.ask("remaining") == 0
        assert process.ask("release") is False
        successor.renew()


def test_a_process_that_held_the_gil_past_its_ttl_knows_that_it_lost(holder: StartHolder) -> None:
    """D2: python-redis-lock lost a one-second lease this way, and nobody was told."""
    process = holder()
    process.ask("enter", key="a", ttl=0.5)
    process.ask("hold the gil", seconds=0.8)
    assert process.ask("lost") is True
    assert process.ask("exit") == "LeaseLost"


def test_a_process_that_held_the_gil_for_less_keeps_it(holder: StartHolder) -> None:
    """D2"""
    process = holder()
    process.ask("enter", key="a", ttl=1.2)
    for _ in range(3):
        process.ask("hold the gil", seconds=0.5)
        assert process.ask("lost") is False
    assert process.ask("exit") is None


def test_a_killed_holder_blocks_for_no_longer_than_its_ttl(holder: StartHolder) -> None:
    """D1"""
    process = holder()
    process.ask("enter", key="a", ttl=0.6)
    process.kill()
    assert Lease("a", ttl=5, owner="me", wait=5).acquire()


def test_a_forked_child_owns_nothing(holder: StartHolder) -> None:
    """D1: with redis-py the child's release deletes the parent's lock."""
    process = holder()
    process.ask("enter", key="a", ttl=5)
    assert process.ask("fork and release") == "False"
    assert process.ask("lost") is False
    assert process.ask("renew") is None
    assert not Lease("a", ttl=5, owner="me").acquire()
    assert process.ask("exit") is None


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("renew", "LeaseLost"),
        ("check", "LeaseLost"),
        ("remaining", "0.0"),
        ("acquire", "False"),
    ],
)
def test_a_forked_child_is_told_so(locks: ValkeyServer, action: str, said: str) -> None:
    """D1"""
    lease = Lease("a", ttl=5, fenced=False)
    assert lease.acquire()
    assert in_a_child(getattr(lease, action)) == said
    assert lease.held
    lease.renew()
    assert lease.release()


def test_a_named_owner_is_not_inherited_either(locks: ValkeyServer) -> None:
    """D1"""
    lease = Lease("a", ttl=5, owner="operation:1")
    lease.acquire()
    assert in_a_child(lease.acquire) == "LeaseError"


def test_two_children_of_one_prepared_lease_are_two_owners(locks: ValkeyServer) -> None:
    """D1: a lease made before the fork, as a module does, must not let both in."""
    prepared = Lease("a", ttl=5, fenced=False)
    assert [in_a_child(prepared.acquire), in_a_child(prepared.acquire)] == ["True", "False"]


def test_a_child_does_not_write_into_its_parents_connection(locks: ValkeyServer) -> None:
    """D1"""

    def connection_number() -> int:
        return int(server_for().call("CLIENT", "ID"))

    mine = connection_number()
    assert in_a_child(connection_number) != str(mine)
    assert connection_number() == mine


def test_a_child_has_a_renewer_of_its_own(locks: ValkeyServer) -> None:
    """D2"""

    def outlive_a_ttl() -> bool:
        with Lease("b", ttl=0.4, owner="child") as lease:
            first_end = lease.remaining()
            wait_until(lambda: lease.remaining() > first_end - 0.01 or lease.lost, timeout=2)
            return lease.held

    with Lease("a", ttl=0.4, owner="parent") as lease:
        assert in_a_child(outlive_a_ttl) == "True"
        assert lease.held


def test_counts_of_the_parent_are_not_sent_by_the_child(locks: ValkeyServer) -> None:
    """D5"""
    Lease("a", ttl=5, owner="me").acquire()

    def acquire_and_release() -> bool:
        lease = Lease("b", ttl=5, owner="child")
        return lease.acquire() and lease.release()

    assert in_a_child(acquire_and_release) == "True"
    # The child's own acquire went along with its release; the parent's is still here.
    assert totals() == {"acquired": 2}
