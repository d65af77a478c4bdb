"""Fences only grow, whatever becomes of the server that hands them out; and what they are for."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from pytest_django import Settings

from locks import Lease, LeaseUnavailable, fenced_update
from locks.backend import Claim
from locks.fences import next_block
from locks.metrics import totals
from locks.selection import backend_for
from locks.valkey.backend import ValkeyBackend
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.tally import Tally, new_tally

pytestmark = pytest.mark.usefixtures("fences")

SpareServers = Callable[..., ValkeyServer]


def take(number: int = 1) -> list[int]:
    """Fences of so many leases, one after the other."""
    taken = []
    for _ in range(number):
        lease = Lease("a", ttl=5)
        assert lease.acquire()
        taken.append(lease.fence)
        lease.release()
    return taken


def grows(fences: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(fences))


def test_it_grows_from_one_block_into_the_next(locks: ValkeyServer) -> None:
    """D2"""
    fences = take(3)
    with locks.client() as client:
        client.hset("locks:fence", "next", client.hget("locks:fence", "last"))
    fences += take(4)
    assert grows(fences)


def test_it_grows_over_a_flush(locks: ValkeyServer) -> None:
    """D2"""
    fences = take(2)
    for _ in range(3):
        locks.flush()
        fences += take(2)
    assert grows(fences)


def test_it_grows_over_a_restart_without_memory(spare: SpareServers, settings: Settings) -> None:
    """D2"""
    server = spare("forgetful")
    settings.LOCKS_URL = server.url
    fences = take(2)
    server.restart()
    with server.client() as client:
        assert not client.exists("locks:fence")
    fences += take(2)
    assert grows(fences)


def test_it_grows_over_a_restart_with_an_old_memory(
    spare: SpareServers, settings: Settings
) -> None:
    """D2: the counter is there, but it is behind."""
    server = spare("remembering")
    settings.LOCKS_URL = server.url
    fences = take(2)
    with server.client() as client:
        client.save()
    fences += take(5)
    server.kill()
    server.start()
    with server.client() as client:
        assert int(client.hget("locks:fence", "next")) < fences[-1]
    fences += take(2)
    assert grows(fences)


def test_it_grows_over_a_failover_to_an_empty_replica(
    spare: SpareServers, settings: Settings
) -> None:
    """D2"""
    fences = []
    for name in ("primary", "empty"):
        settings.LOCKS_URL = spare(name).url
        fences += take(2)
    assert grows(fences)


@pytest.fixture
def lagging(
    spare: SpareServers, settings: Settings
) -> Iterator[tuple[ValkeyServer, ValkeyServer, list[int]]]:
    """A primary, its promoted replica that missed some fences, and the fences so far."""
    primary, replica = spare("primary"), spare("replica")
    settings.LOCKS_URL = primary.url
    with Proxy(primary.url) as link, replica.client() as client:
        client.replicaof("127.0.0.1", link.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", timeout=20)
        fences = take(2)
        wait_until(lambda: int(client.hget("locks:fence", "next") or 0) > fences[-1])
        link.black_hole()
        fences += take(5)
        client.replicaof("NO", "ONE")
        assert int(client.hget("locks:fence", "next")) <= fences[-1]
        yield primary, replica, fences


def test_it_grows_over_a_failover_to_a_lagging_replica(
    lagging: tuple[ValkeyServer, ValkeyServer, list[int]], settings: Settings
) -> None:
    """D2"""
    _, replica, fences = lagging
    settings.LOCKS_URL = replica.url
    assert grows(fences + take(2))


def test_it_grows_when_the_old_primary_comes_back_with_the_replicas_memory(
    lagging: tuple[ValkeyServer, ValkeyServer, list[int]], settings: Settings
) -> None:
    """D2: the run id is that of the block, but the counter is the one that lagged."""
    primary, replica, fences = lagging
    port = int(replica.url.rpartition(":")[2].partition("/")[0])
    with primary.client() as client:
        client.replicaof("127.0.0.1", port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", timeout=20)
        assert int(client.hget("locks:fence", "next")) <= fences[-1]
        client.replicaof("NO", "ONE")
    settings.LOCKS_URL = primary.url
    assert grows(fences + take(2))


def test_it_grows_over_an_eviction(spare: SpareServers, settings: Settings) -> None:
    """D2: such a server is refused by the system check; fences hold all the same."""
    server = spare("evicting", maxmemory="3mb", maxmemory_policy="allkeys-random")
    settings.LOCKS_URL = server.url
    fences = take(2)
    with server.client() as client:
        for number in range(100_000):
            client.set(f"junk:{number}", "x" * 10_000)
            if number % 20 == 0 and not client.exists("locks:fence"):
                break
        assert not client.exists("locks:fence")
        client.flushdb()
    fences += take(2)
    assert grows(fences)


def test_a_block_fetched_before_a_flush_is_not_used_after_it(locks: ValkeyServer) -> None:
    """D2: somebody asked for a block, was stopped, and comes back much later."""
    backend = ValkeyBackend()
    slow = Claim("slow", "me", 5)
    asked, mark = backend._ask(slow, True, 0, "", [])
    assert asked == b"block"
    first, last = next_block()
    stale = f"{first} {last} {mark.decode()}"
    locks.flush()
    (fence,) = take()
    assert fence > last
    for _ in range(2):
        answer = backend._ask(slow, True, 0, stale, [])
        assert answer[0] == b"block" or int(answer[1]) > fence
        locks.flush()


def test_two_that_ask_for_a_block_at_once_use_one(locks: ValkeyServer) -> None:
    """D2"""
    backend = ValkeyBackend()
    first, second = Claim("first", "me", 5), Claim("second", "me", 5)
    _, mark = backend._ask(first, True, 0, "", [])
    assert backend._ask(second, True, 0, "", []) == [b"block", mark]
    lower, higher = next_block(), next_block()
    answers = [
        backend._ask(claim, True, 0, "{} {} {}".format(*block, mark.decode()), [])
        for claim, block in ((second, higher), (first, lower))
    ]
    assert [int(fence) for _, fence in answers] == [higher[0], higher[0] + 1]


def test_it_grows_for_all_while_the_server_is_flushed_again_and_again(locks: ValkeyServer) -> None:
    """D2: a lease that was granted after another one ended being granted has the higher fence."""
    grants: list[tuple[float, float, int]] = []
    flushes: list[float] = []
    until = time.monotonic() + 20

    def going_on() -> bool:
        return time.monotonic() < until and (len(grants) < 100 or len(flushes) < 6)

    def take_often(number: int) -> None:
        try:
            while going_on():
                lease = Lease(f"key-{number % 3}", ttl=5)
                began = time.monotonic()
                try:
                    granted = lease.acquire()
                except LeaseUnavailable:
                    continue  # flushed between every try and its block
                if granted:
                    grants.append((began, time.monotonic(), lease.fence))
                    lease.release()
        finally:
            connections.close_all()

    def flush_often() -> None:
        while going_on():
            time.sleep(random.uniform(0.02, 0.3))
            locks.flush()
            flushes.append(time.monotonic())

    flusher = threading.Thread(target=flush_often)
    flusher.start()
    with ThreadPoolExecutor(6) as threads:
        for taker in [threads.submit(take_often, number) for number in range(6)]:
            taker.result()
    flusher.join()
    assert min(len(grants), len(flushes) * 10) >= 60
    assert len({fence for _, _, fence in grants}) == len(grants)
    for began, _, fence in grants:
        assert all(other < fence for _, ended, other in grants if ended < began)


def test_without_the_database_there_is_no_fence_and_no_lease(
    locks: ValkeyServer, settings: Settings
) -> None:
    """D2"""
    connections["default"].close()
    port = settings.DATABASES["default"]["PORT"]
    connections["default"].settings_dict["PORT"] = "1"
    try:
        with pytest.raises(LeaseUnavailable, match="database"):
            Lease("a", ttl=5).acquire()
        assert Lease("a", ttl=5, owner="operation:1").acquire()
    finally:
        connections["default"].settings_dict["PORT"] = port


def test_fences_of_rows_grow_too_and_past_those_of_valkey(
    locks: ValkeyServer, settings: Settings
) -> None:
    """D2, D3"""
    fences = take(3)
    settings.LOCKS_BACKEND = "postgres"
    fences += take(3)
    assert grows(fences)


def test_a_row_refuses_an_older_fence(locks: ValkeyServer) -> None:
    """D2"""
    tally = new_tally()
    rows = Tally.objects.filter(pk=tally.pk)
    old, new = take(2)
    assert fenced_update(rows, old, value=1) == 1
    assert fenced_update(rows, new, value=2) == 1
    assert fenced_update(rows, new, value=3) == 1
    assert fenced_update(rows, old, value=4) == 0
    tally.refresh_from_db()
    assert (tally.value, tally.fence) == (3, new)
    assert totals()["stale_write"] == 1


def test_a_lease_without_a_fence_cannot_pass_for_one_with(locks: ValkeyServer) -> None:
    """D2"""
    lease = Lease("a", ttl=5, owner="me")
    lease.acquire()
    new_tally()
    with pytest.raises(ValueError, match="no fence"):
        fenced_update(Tally.objects.all(), lease.fence, value=1)


def test_the_name_of_a_backend_must_be_known() -> None:
    """D3"""
    with pytest.raises(ValueError, match="mongo"):
        backend_for("mongo")
