"""Waiting costs the server next to nothing, and a release wakes one waiter."""

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import redis

from locks import Lease, release
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.holder import Holder


def calls(client: redis.Redis, *commands: str) -> dict[str, int]:
    stats = client.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in commands}


def waiting(client: redis.Redis, number: int) -> Callable[[], bool]:
    """Whether so many are blocked in the server."""
    return lambda: client.info("clients")["blocked_clients"] == number


def test_a_hundred_waiters_neither_poll_nor_stampede(locks: ValkeyServer) -> None:
    """D1: redis-py's lock would send a thousand SETs a second here."""
    together: list[int] = []
    inside: set[int] = set()

    def wait_and_work(number: int) -> None:
        lease = Lease("a", ttl=20, owner=f"waiter-{number}", wait=30)
        assert lease.acquire()
        inside.add(number)
        together.append(len(inside))
        inside.remove(number)
        lease.release()

    assert Lease("a", ttl=20, owner="holder").acquire()
    with locks.client() as client, ThreadPoolExecutor(100) as threads:
        waiters = [threads.submit(wait_and_work, number) for number in range(100)]
        wait_until(waiting(client, 100))
        client.config_resetstat()
        time.sleep(0.5)
        idle = calls(client, "evalsha", "blpop")
        release("a", "holder")
        for waiter in waiters:
            waiter.result(timeout=20)
        busy = calls(client, "evalsha", "blpop", "lpush")
    assert idle == {"evalsha": 0, "blpop": 0}
    assert together == [1] * 100
    # Each acquires and releases once; few find that another was faster and wait again.
    assert busy["evalsha"] <= 1 + 3 * 100
    assert busy["lpush"] <= 101


def test_a_release_wakes_one_of_many(locks: ValkeyServer) -> None:
    """D1"""
    assert Lease("a", ttl=20, owner="holder").acquire()
    acquired: list[Lease] = []

    def wait(number: int) -> None:
        lease = Lease("a", ttl=20, owner=f"waiter-{number}", wait=1)
        if lease.acquire():
            acquired.append(lease)

    with locks.client() as client, ThreadPoolExecutor(20) as threads:
        waiters = [threads.submit(wait, number) for number in range(20)]
        wait_until(waiting(client, 20))
        client.config_resetstat()
        release("a", "holder")
        wait_until(lambda: acquired)
        wait_until(waiting(client, 19))
        assert calls(client, "evalsha") == {"evalsha": 2}
        acquired[0].release()
        wait_until(lambda: len(acquired) == 2)
        acquired[1].release()
        for waiter in waiters:
            waiter.result(timeout=20)


def test_waiters_that_give_up_leave_no_trace(locks: ValkeyServer) -> None:
    """D1"""
    holder = Lease("a", ttl=20, owner="holder")
    holder.acquire()
    with ThreadPoolExecutor(10) as threads:
        waits: list[Future[bool]] = [
            threads.submit(Lease("a", ttl=20, owner=f"w{number}", wait=0.2).acquire)
            for number in range(10)
        ]
        assert not any(wait.result() for wait in waits)
    holder.release()
    with locks.client() as client:
        assert client.keys("locks:w*") == []


def test_when_the_holder_dies_the_waiters_come_one_after_the_other(
    locks: ValkeyServer, holder: Callable[[], Holder]
) -> None:
    """D1"""
    process = holder()
    process.ask("acquire", key="a", ttl=0.6)
    process.kill()

    def wait(number: int) -> None:
        lease = Lease("a", ttl=20, owner=f"waiter-{number}", wait=20)
        assert lease.acquire()
        lease.release()

    began = time.monotonic()
    with locks.client() as client, ThreadPoolExecutor(50) as threads:
        client.config_resetstat()
        for waiter in [threads.submit(wait, number) for number in range(50)]:
            waiter.result(timeout=20)
        assert calls(client, "evalsha")["evalsha"] <= 50 * 4
    assert time.monotonic() - began < 4


def test_a_killed_waiter_costs_the_others_no_more_than_a_ttl(
    locks: ValkeyServer, holder: Callable[[], Holder]
) -> None:
    """D1: the one that a release woke may be dead or stopped."""
    dead, stopped = holder(), holder()
    with (
        Lease("a", ttl=1, owner="holder") as lease,
        locks.client() as client,
        ThreadPoolExecutor(1) as threads,
    ):
        dead.tell("acquire", key="a", ttl=20, wait=30)
        wait_until(waiting(client, 1))
        stopped.tell("acquire", key="a", ttl=20, wait=30)
        wait_until(waiting(client, 2))
        dead.kill()
        stopped.stop()
        later = threads.submit(Lease("a", ttl=20, owner="me", wait=20).acquire)
        wait_until(lambda: client.zcard("locks:waiting:a") == 3)
        lease.release()
        began = time.monotonic()
        assert later.result(timeout=10)
        assert time.monotonic() - began < 3


def test_a_waiter_notices_that_the_lease_was_renewed_and_waits_on(locks: ValkeyServer) -> None:
    """D1"""
    lease = Lease("a", ttl=0.5, owner="holder")
    lease.acquire()
    with ThreadPoolExecutor(1) as threads:
        later = threads.submit(Lease("a", ttl=20, owner="me", wait=10).acquire)
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            lease.renew()
            assert not later.done()
            time.sleep(0.05)
        lease.release()
        assert later.result(timeout=2)


class TimeLimit(Exception):
    pass


def test_an_interrupted_waiter_is_taken_off_the_list(locks: ValkeyServer) -> None:
    """D1: a soft time limit strikes in the midst of a wait."""
    Lease("a", ttl=20, owner="holder").acquire()

    def strike(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeLimit):
            Lease("a", ttl=20, owner="me", wait=10).acquire()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with locks.client() as client:
        assert client.zcard("locks:waiting:a") == 0
