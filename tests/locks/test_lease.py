"""What a lease promises, whichever store it lives in."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from locks import Lease, LeaseError, LeaseHeld, LeaseLost, release
from locks.metrics import totals
from tests.lab.waiting import wait_until


@pytest.mark.parametrize("ttl", [0, -1, 0.0005, 90_000, float("nan"), float("inf")])
def test_a_ttl_that_is_no_lease_is_refused_where_it_is_written(ttl: float) -> None:
    """D1"""
    with pytest.raises(ValueError, match="TTL"):
        Lease("a", ttl=ttl)


@pytest.mark.parametrize("key", ["", "a\0b", "k" * 513])
def test_a_key_that_cannot_be_stored_is_refused(key: str) -> None:
    """D1"""
    with pytest.raises(ValueError, match="key"):
        Lease(key, ttl=1)


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan")])
def test_a_wait_without_a_bound_is_refused(wait: float) -> None:
    """D1"""
    with pytest.raises(ValueError, match="wait"):
        Lease("a", ttl=1, wait=wait)


def test_only_one_holds_it(store: str) -> None:
    """D1"""
    first, second = Lease("a", ttl=5), Lease("a", ttl=5)
    assert first.acquire()
    assert not second.acquire()
    assert first.release()
    assert second.acquire()
    assert second.fence > first.fence


def test_keys_do_not_touch_each_other(store: str) -> None:
    """D1"""
    assert Lease("a", ttl=5).acquire()
    assert Lease("b", ttl=5).acquire()


def test_a_holder_that_knows_it_holds_cannot_acquire_twice(store: str) -> None:
    """D1"""
    lease = Lease("a", ttl=5)
    lease.acquire()
    with pytest.raises(LeaseError, match="already"):
        lease.acquire()


def test_it_ends_by_itself(store: str) -> None:
    """D1"""
    lease = Lease("a", ttl=0.4)
    assert lease.acquire()
    assert 0 < lease.remaining() < 0.4
    successor = Lease("a", ttl=5)
    wait_until(successor.acquire, timeout=2)
    assert lease.lost
    assert lease.remaining() == 0
    assert totals()["lost_expired"] == 1


def test_the_holder_is_told_before_somebody_else_can_have_it(store: str) -> None:
    """D2"""
    lease = Lease("a", ttl=0.4)
    lease.acquire()
    while not Lease("a", ttl=5).acquire():
        assert lease.lost or lease.remaining() > 0
    assert lease.lost


def test_renewing_sets_the_ttl_and_never_adds(store: str) -> None:
    """D2"""
    lease = Lease("a", ttl=2)
    lease.acquire()
    for _ in range(10):
        lease.renew()
    assert lease.remaining() <= 2
    (seen,) = lease._backend.held()
    assert seen.remaining <= 2


def test_renewing_keeps_it_past_its_first_ttl(store: str) -> None:
    """D2, B4"""
    lease = Lease("a", ttl=0.4)
    lease.acquire()
    began = time.monotonic()
    while time.monotonic() < began + 0.6:
        lease.renew()
        assert not Lease("a", ttl=5).acquire()
        time.sleep(0.05)
    assert not lease.lost


def test_renewing_after_the_end_is_refused_although_nobody_took_it(store: str) -> None:
    """D2"""
    lease = Lease("a", ttl=0.3)
    lease.acquire()
    wait_until(lambda: lease.lost)
    with pytest.raises(LeaseLost, match="ran out"):
        lease.renew()
    assert Lease("a", ttl=5, wait=1).acquire()


def test_a_loss_stays_a_loss(store: str) -> None:
    """D2"""
    lease = Lease("a", ttl=0.3)
    lease.acquire()
    wait_until(lambda: lease.lost)
    with pytest.raises(LeaseLost):
        lease.check()
    assert not lease.release()
    assert not lease.held


def test_a_lease_taken_away_is_noticed_at_the_next_renewal(store: str) -> None:
    """D2, D5"""
    told: list[Lease] = []
    lease = Lease("a", ttl=5, owner="me", on_lost=told.append)
    lease.acquire()
    assert release("a", "me")
    other = Lease("a", ttl=5)
    assert other.acquire()
    with pytest.raises(LeaseLost, match="another owner"):
        lease.renew()
    assert lease.lost
    assert told == [lease]
    assert not lease.release()
    other.renew()
    counted = totals()
    assert counted["lost_taken"] == 1
    assert counted["release_mismatched"] == 1


def test_only_its_owner_can_release_it(store: str) -> None:
    """D1, D5"""
    lease = Lease("a", ttl=5, owner="operation-1:7")
    lease.acquire()
    assert lease.owner == "operation-1:7"
    assert not release("a", "operation-1:6")
    assert not Lease("a", ttl=5).acquire()
    assert release("a", "operation-1:7")
    assert not release("a", "operation-1:7")
    assert Lease("a", ttl=5).acquire()


def test_releasing_twice_is_allowed(store: str) -> None:
    """D1"""
    lease = Lease("a", ttl=5)
    assert not lease.release()
    lease.acquire()
    assert lease.release()
    assert not lease.release()
    assert not lease.lost
    assert lease.acquire()


def test_each_acquire_is_another_owner_unless_it_was_named(store: str) -> None:
    """D1"""
    lease, named = Lease("a", ttl=5), Lease("b", ttl=5, owner="me")
    lease.acquire()
    first = lease.owner
    lease.release()
    lease.acquire()
    assert lease.owner != first
    named.acquire()
    named.release()
    named.acquire()
    assert named.owner == "me"


def test_a_lease_with_a_named_owner_takes_no_fence(store: str) -> None:
    """D2"""
    lease = Lease("a", ttl=5, owner="me")
    lease.acquire()
    assert lease.fence == 0
    fenced = Lease("b", ttl=5, owner="me", fenced=True)
    fenced.acquire()
    assert fenced.fence > 0


def test_a_waiter_gets_it_when_it_is_released(store: str) -> None:
    """D1, D5"""
    holder = Lease("a", ttl=30, owner="holder")
    holder.acquire()
    timer = threading.Timer(0.2, release, args=("a", "holder"))
    if store == "postgres":
        timer = threading.Timer(0.2, lambda: None)
        holder.release()
        holder = Lease("a", ttl=0.4, owner="holder")
        holder.acquire()
    timer.start()
    waiter = Lease("a", ttl=30, wait=10)
    assert waiter.acquire()
    timer.join()
    counted = totals()
    assert counted["waited"] == 1
    assert counted["waited_ms"] >= 100


def test_a_wait_is_bounded(store: str) -> None:
    """D1"""
    assert Lease("a", ttl=30).acquire()
    began = time.monotonic()
    assert not Lease("a", ttl=30, wait=0.3).acquire()
    assert 0.25 < time.monotonic() - began < 2


def test_two_threads_are_one_holder(store: str) -> None:
    """D2: the heartbeat of operations renews from a thread of its own."""
    lease = Lease("a", ttl=5, owner="me")
    lease.acquire()

    def renew_often() -> None:
        try:
            for _ in range(100):
                lease.renew()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        for renewal in [threads.submit(renew_often) for _ in range(4)]:
            renewal.result()
    assert lease.release()


def test_the_body_runs_while_it_is_held_and_only_then(store: str) -> None:
    """D1"""
    with Lease("a", ttl=5) as lease:
        assert lease.held
        with pytest.raises(LeaseHeld), Lease("a", ttl=5):
            pytest.fail("two in the same place")
    assert not lease.held
    with Lease("a", ttl=5):
        pass


def test_the_body_keeps_it_for_longer_than_its_ttl(store: str) -> None:
    """D2, B4"""
    with Lease("a", ttl=0.5) as lease:
        began = time.monotonic()
        while time.monotonic() < began + 0.8:
            assert not Lease("a", ttl=5).acquire()
            time.sleep(0.02)
        assert not lease.lost


def test_a_body_that_outlived_its_lease_is_not_a_success(store: str) -> None:
    """D2"""
    with pytest.raises(LeaseLost), Lease("a", ttl=5, owner="me"):
        assert release("a", "me")


def test_an_error_of_the_body_is_not_hidden_by_the_loss(store: str) -> None:
    """D2"""

    def lose_it_and_fail() -> None:
        with Lease("a", ttl=5, owner="me"):
            assert release("a", "me")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose_it_and_fail()


def test_a_body_may_release_early(store: str) -> None:
    """D1"""
    with Lease("a", ttl=5) as lease:
        assert lease.release()


def test_a_failing_listener_harms_nobody(store: str) -> None:
    """D2"""

    def fail(_lease: Lease) -> None:
        raise RuntimeError("listener")

    lease = Lease("a", ttl=0.3, on_lost=fail)
    lease.acquire()
    wait_until(lambda: lease.lost)
