"""Rate limits, and that they never stand in the way of a replay or of the service."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from locks.cache.breaker import breaker_for
from operations.api.limits import Counters
from operations.models import Operation
from tests.lab.processes import Stack
from tests.lab.proxy import Proxy
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client, new_client
from tests.operations.api.expect import problem

LIMIT = 5
LIST = "/api/v1/operations"


@pytest.fixture
def limited(stack: Stack) -> Iterator[Client]:
    """A client of two API processes that allow little."""
    stack.env |= {
        "SEKALI_RATE_LIMIT": str(LIMIT),
        "SEKALI_READ_RATE_LIMIT": str(LIMIT),
        "SEKALI_RATE_WINDOW": "3",
    }
    stack.start(apis=2, workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        yield client


def test_writes_are_limited_per_owner_and_kind_and_replays_are_answered(
    limited: Client, stack: Stack
) -> None:
    """A8 A10: over all processes; and after the window everything is as before."""
    with new_client(stack.api_urls[1]) as twin:
        twin.http.headers["Authorization"] = limited.http.headers["Authorization"]
        accepted = [
            (limited, twin)[n % 2].post(body={"number": n}, key=f"k{n}") for n in range(LIMIT)
        ]
        assert {answer.status_code for answer in accepted} == {202}
        for client in (limited, twin):
            refused = client.post(key="new")
            problem(refused, 429, "rate_limited")
            assert 1 <= int(refused.headers["Retry-After"]) <= 3
            replay = client.post(body={"number": 2}, key="k2")
            assert (replay.status_code, replay.json()["id"]) == (202, accepted[2].json()["id"])
            assert replay.headers["Idempotent-Replayed"] == "true"
            problem(client.post(body={"number": 3}, key="k2"), 422, "idempotency_key_reused")
            problem(client.post(key="a b"), 429, "rate_limited")
        assert limited.post("/api/v1/scripted/split", key="new").status_code == 202
        with new_client(stack.api_url) as other:
            assert other.post(key="new").status_code == 202
    assert Operation.objects.filter(owner_id=limited.user).count() == LIMIT + 1
    wait_until(lambda: limited.post(key="new").status_code == 202, timeout=6, every=0.5)


def test_reads_are_limited_per_owner(limited: Client, stack: Stack) -> None:
    """A8: whatever is read; writes are counted apart."""
    answers = [limited.get(LIST).status_code for _ in range(LIMIT)]
    assert answers == [200] * LIMIT
    refused = limited.get(f"{LIST}/00000000-0000-7000-8000-000000000000")
    problem(refused, 429, "rate_limited")
    assert 1 <= int(refused.headers["Retry-After"]) <= 3
    assert limited.post().status_code == 202
    with new_client(stack.api_url) as other:
        assert other.get(LIST).status_code == 200


def test_cancelling_again_is_answered_beyond_the_limit(limited: Client) -> None:
    """A10"""
    cancel = f"{limited.post().headers['Location']}/cancel"
    open_one = f"{limited.post().headers['Location']}/cancel"
    answers = {limited.post(cancel).status_code for _ in range(LIMIT + 2)}
    assert answers == {200}
    problem(limited.post(open_one), 429, "rate_limited")


def test_a_server_of_counters_that_is_gone_lets_everything_through(
    limited: Client, stack: Stack
) -> None:
    """A8: killed, then back."""
    stack.lab.cache.kill()
    started = time.monotonic()
    assert {limited.post().status_code for _ in range(3 * LIMIT)} == {202}
    assert time.monotonic() - started < 3
    stack.lab.cache.start()
    wait_until(lambda: limited.post().status_code == 429, timeout=10)


def test_a_frozen_server_of_counters_costs_one_time_out_in_a_while(
    limited: Client, stack: Stack
) -> None:
    """A8: per process, however many requests there are."""
    limited.post()
    stack.lab.cache.stop()

    def timed(_: int) -> float:
        started = time.monotonic()
        assert limited.post().status_code == 202
        return time.monotonic() - started

    with ThreadPoolExecutor(4) as pool:
        times = sorted(pool.map(timed, range(60)))
    assert times[-1] < 2
    assert sum(time > 0.24 for time in times) <= 8


@pytest.fixture
def counters(cache_server: ValkeyServer) -> Iterator[tuple[Proxy, Counters]]:
    """Counters of this process, and the way to them."""
    with Proxy(cache_server.url) as way:
        yield way, Counters(way.url, 2)


def test_a_full_server_of_counters_is_not_left_alone(
    counters: tuple[Proxy, Counters], cache_server: ValkeyServer
) -> None:
    """A8 E7: the cache beside them goes on telling what it has."""
    way, counted = counters
    with cache_server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        try:
            assert [counted.count("full", 60) for _ in range(3)] == [None] * 3
            assert not breaker_for(way.url).is_open
        finally:
            client.config_set("maxmemory", "64mb")
            client.config_set("maxmemory-policy", "allkeys-lru")
    assert counted.count("full", 60) == (1, 60)


def test_counters_follow_the_name_when_their_server_becomes_a_replica(
    counters: tuple[Proxy, Counters], cache_server: ValkeyServer, locks: ValkeyServer
) -> None:
    """A8 E7: kept connections lead to what was the primary."""
    way, counted = counters
    assert counted.count("moved", 60) == (1, 60)
    way.lead_to(locks.url)
    with cache_server.client() as client, locks.client() as other:
        try:
            client.replicaof("127.0.0.1", "9")
            other.config_set("requirepass", str(urlsplit(cache_server.url).password))
            assert counted.count("moved", 60) is None
            assert counted.count("moved", 60) == (1, 60)
        finally:
            other.config_set("requirepass", str(urlsplit(locks.url).password))
            client.replicaof("NO", "ONE")
