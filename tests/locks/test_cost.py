"""What a lease costs: round trips on the wire, and time beside redis-py's own lock."""

import threading
import time
from collections.abc import Callable

import pytest
import redis

from locks import Lease, LeaseLost, release
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until


@pytest.fixture
def warm(proxy: Proxy) -> Proxy:
    """Connected, with all scripts known to the server; what was sent is forgotten."""
    lease = Lease("warm", ttl=5, owner="me")
    lease.acquire()
    lease.renew()
    lease.release()
    proxy.requests.clear()
    return proxy


def test_acquire_renew_and_release_cost_one_round_trip_each(warm: Proxy) -> None:
    """D1"""
    lease = Lease("a", ttl=5, owner="operation:1")
    lease.acquire()
    assert len(warm.requests) == 1
    lease.renew()
    assert len(warm.requests) == 2
    lease.release()
    assert len(warm.requests) == 3
    release("a", "operation:1")
    assert len(warm.requests) == 4
    assert not Lease("a", ttl=5, owner="other").lost
    assert all(b"EVALSHA" in request for request in warm.requests)


def test_being_refused_costs_one_round_trip(warm: Proxy) -> None:
    """D1"""
    Lease("a", ttl=5, owner="operation:1").acquire()
    assert not Lease("a", ttl=5, owner="operation:2").acquire()
    assert len(warm.requests) == 2


def test_a_loss_that_the_clock_shows_costs_none(warm: Proxy) -> None:
    """D2"""
    lease = Lease("a", ttl=0.4, owner="me")
    lease.acquire()
    wait_until(lambda: lease.lost)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert len([request for request in warm.requests if b"EVALSHA" in request]) == 1


def test_a_fenced_lease_asks_the_database_once_in_a_thousand(warm: Proxy, fences: None) -> None:
    """D1, D2"""
    Lease("a", ttl=5).acquire()
    warm.requests.clear()
    for number in range(20):
        lease = Lease(f"b{number}", ttl=5)
        lease.acquire()
        lease.release()
    assert len(warm.requests) == 40


def test_an_operations_lease_needs_no_database(warm: Proxy) -> None:
    """D1: this test has no access to one."""
    with Lease("a", ttl=5, owner="operation:1"):
        pass
    assert len(warm.requests) == 2


def test_many_leases_of_a_process_are_renewed_together(warm: Proxy) -> None:
    """D2"""
    leases = [Lease(f"a{number}", ttl=1.2, owner="me") for number in range(20)]
    for lease in leases:
        lease.__enter__()
    warm.requests.clear()
    time.sleep(0.7)
    renewals = [request for request in warm.requests if b"EVALSHA" in request]
    for lease in leases:
        lease.__exit__(None, None, None)
    assert 1 <= len(renewals) <= 5
    assert sum(request.count(b"EVALSHA") for request in renewals) == 20


def test_it_is_no_slower_than_redis_pys_lock(locks: ValkeyServer) -> None:
    """D1: the best of several rounds each, in turn, so that a busy machine hurts both."""
    client = redis.Redis.from_url(locks.url)
    ours = Lease("a", ttl=5, owner="me")
    theirs = client.lock("b", timeout=5, blocking=False)

    def cycles(lock: Lease | redis.lock.Lock) -> float:
        began = time.perf_counter()
        for _ in range(50):
            assert lock.acquire()
            lock.release()
        return time.perf_counter() - began

    rounds: list[tuple[float, float]] = [(cycles(ours), cycles(theirs)) for _ in range(20)]
    client.close()
    best_of_ours, best_of_theirs = (min(column) for column in zip(*rounds, strict=True))
    assert best_of_ours < best_of_theirs * 1.1, (best_of_ours, best_of_theirs)


def test_a_thousand_bodies_leave_no_key_and_no_thread(locks: ValkeyServer) -> None:
    """D1: whether they end well, raise or are cancelled."""

    class Cancelled(BaseException):
        pass

    def well() -> None:
        return

    def raising() -> None:
        raise ZeroDivisionError

    def cancelled() -> None:
        raise Cancelled

    bodies: list[Callable[[], None]] = [well, raising, cancelled]
    for number in range(999):
        try:
            with Lease(f"a{number % 10}", ttl=5, owner=f"body-{number}"):
                bodies[number % 3]()
        except (ZeroDivisionError, Cancelled):
            continue
    with locks.client() as client:
        assert client.keys("*") == [b"locks:counts"]
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "locks-renewer"])
