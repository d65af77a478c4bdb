"""What the holder gets when the network or the server fails. The proxy stands between."""

import time

import pytest
from pytest_django import Settings

from locks import Lease, LeaseLost, LeaseUnavailable, release
from locks.metrics import totals
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until

ACQUIRE, RELEASE = b"locks:lease:a", b"locks:lease:a"


@pytest.fixture(autouse=True)
def _short_timeout(settings: Settings) -> None:
    settings.LOCKS_TIMEOUT = 0.2


def lease(ttl: float = 5) -> Lease:
    return Lease("a", ttl=ttl, owner="me")


FAULTS = ["drop_request", "drop_reply", "reset_before", "reset_after"]


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_does_not_spoil_an_acquire(proxy: Proxy, fault: str) -> None:
    """D1: redis-py's lock says False here and holds the key for its whole TTL."""
    getattr(proxy, fault)(ACQUIRE)
    mine = lease()
    assert mine.acquire()
    mine.renew()
    assert mine.release()


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_does_not_spoil_a_renewal(proxy: Proxy, fault: str) -> None:
    """D2"""
    mine = lease()
    mine.acquire()
    getattr(proxy, fault)(ACQUIRE)
    mine.renew()
    assert mine.remaining() > 4
    assert mine.release()


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_does_not_spoil_a_release(proxy: Proxy, locks: ValkeyServer, fault: str) -> None:
    """D1, D5"""
    mine = lease()
    mine.acquire()
    getattr(proxy, fault)(RELEASE)
    assert mine.release()
    with locks.client() as client:
        assert not client.exists("locks:lease:a")
    assert "release_mismatched" not in totals()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_lasts_leaves_nothing_that_cannot_be_undone(proxy: Proxy, fault: str) -> None:
    """D1: after LeaseUnavailable both ways out are open."""
    for _ in range(2):
        getattr(proxy, fault)(ACQUIRE)
    mine = lease()
    with pytest.raises(LeaseUnavailable):
        mine.acquire()
    assert not mine.held
    assert mine.acquire()
    for _ in range(2):
        getattr(proxy, fault)(RELEASE)
    with pytest.raises(LeaseUnavailable):
        mine.release()
    assert mine.release()
    assert Lease("a", ttl=5, owner="other").acquire()


@pytest.mark.parametrize("fault", ["drop_reply", "reset_after"])
def test_a_lease_acquired_without_knowing_can_be_released(proxy: Proxy, fault: str) -> None:
    """D1"""
    for _ in range(2):
        getattr(proxy, fault)(ACQUIRE)
    mine = lease()
    with pytest.raises(LeaseUnavailable):
        mine.acquire()
    assert mine.release()
    assert Lease("a", ttl=5, owner="other").acquire()


@pytest.mark.parametrize("fault", ["drop_reply", "reset_after"])
def test_a_body_that_could_not_begin_leaves_no_lease(proxy: Proxy, fault: str) -> None:
    """D1"""
    for _ in range(2):
        getattr(proxy, fault)(ACQUIRE)
    with pytest.raises(LeaseUnavailable), lease():
        pytest.fail("the body ran without a lease")
    assert Lease("a", ttl=5, owner="other").acquire()


def test_a_black_hole_is_noticed_in_time(proxy: Proxy) -> None:
    """D2, D5: two tries of LOCKS_TIMEOUT each."""
    mine = lease()
    mine.acquire()
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(LeaseUnavailable):
        Lease("b", ttl=5, owner="me").acquire()
    assert time.monotonic() - began < 1
    with pytest.raises(LeaseUnavailable):
        mine.renew()
    assert mine.held
    with pytest.raises(LeaseUnavailable):
        mine.release()
    proxy.heal()
    mine.renew()
    assert mine.release()
    counted = totals()
    assert counted["unavailable"] == 2
    assert counted["release_failed"] == 1


def test_the_timeout_is_below_a_quarter_of_the_ttl(proxy: Proxy, settings: Settings) -> None:
    """D2"""
    settings.LOCKS_TIMEOUT = 5
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(LeaseUnavailable):
        lease(ttl=1).acquire()
    assert time.monotonic() - began < 0.6


def test_a_slow_server_shortens_the_lease_and_not_the_safety(proxy: Proxy) -> None:
    """D2: the time is taken before the request is sent."""
    proxy.delay(0.15)
    mine = lease(ttl=1)
    assert mine.acquire()
    assert mine.remaining() < 0.86


def test_the_time_of_a_lease_counts_from_the_first_try(proxy: Proxy) -> None:
    """D2: whichever of the two tries was granted."""
    proxy.drop_reply(ACQUIRE)
    mine = lease(ttl=0.8)
    # Two tries of ttl/4 at most, so the second answer is in time …
    assert mine.acquire()
    assert mine.remaining() < 0.7
    # … and renewing what has ended meanwhile is refused.
    wait_until(lambda: mine.lost)
    with pytest.raises(LeaseLost):
        mine.renew()


def test_a_refused_connection_is_told_at_once(settings: Settings) -> None:
    """D2"""
    settings.LOCKS_URL = "redis://127.0.0.1:1/0"
    began = time.monotonic()
    with pytest.raises(LeaseUnavailable):
        lease().acquire()
    assert time.monotonic() - began < 0.2


def test_a_body_outlives_an_outage_shorter_than_its_ttl(proxy: Proxy) -> None:
    """D2, B4"""
    with lease(ttl=1.5) as mine:
        proxy.black_hole()
        wait_until(lambda: mine.remaining() < 0.6)
        proxy.heal()
        wait_until(lambda: mine.remaining() > 1, timeout=1)
        assert mine.held


def test_a_body_is_told_when_the_outage_outlasts_its_ttl(proxy: Proxy) -> None:
    """D2"""
    told: list[Lease] = []
    mine = Lease("a", ttl=0.5, owner="me", on_lost=told.append)

    def outlive() -> None:
        with mine:
            proxy.black_hole()
            # Nobody asks the lease: the renewer itself tells.
            wait_until(lambda: told, timeout=2)
            proxy.heal()

    with pytest.raises(LeaseLost):
        outlive()
    assert told == [mine]


def test_a_restarted_server_costs_no_error(locks: ValkeyServer, proxy: Proxy) -> None:
    """D1: connections that died while idle are replaced, however many there are."""
    for key in "bcd":
        Lease(key, ttl=5, owner="me").acquire()
    locks.restart()
    mine = lease()
    assert mine.acquire()
    assert mine.release()


def test_a_frozen_server_is_noticed_and_then_forgiven(locks: ValkeyServer) -> None:
    """D2"""
    mine = lease()
    mine.acquire()
    locks.stop()
    with pytest.raises(LeaseUnavailable):
        mine.renew()
    locks.cont()
    mine.renew()
    assert mine.release()


def test_a_server_that_comes_back_empty_means_a_loss(locks: ValkeyServer) -> None:
    """D2"""
    mine = lease()
    mine.acquire()
    locks.flush()
    with pytest.raises(LeaseLost):
        mine.renew()
    assert Lease("a", ttl=5, owner="other").acquire()


def test_a_full_server_still_lets_go(locks: ValkeyServer) -> None:
    """D1"""
    mine = lease()
    mine.acquire()
    with locks.client() as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(LeaseUnavailable, match="refused"):
                Lease("b", ttl=5, owner="me").acquire()
            mine.renew()
            assert not release("a", "somebody else")
            assert mine.release()
            assert not client.exists("locks:lease:a")
        finally:
            client.config_set("maxmemory", "0")
