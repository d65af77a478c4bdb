"""Leases in rows behind a pooler that lends database sessions for a transaction."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from pytest_django import Settings

from locks import Lease, LeaseLost, fenced_update
from locks.held import held_leases
from tests.lab.pgbouncer import PoolerServer
from tests.lab.waiting import wait_until
from tests.locks.tally import Tally, new_tally

StartPooler = Callable[[int], PoolerServer]

#: Sessions of the database, and who wants them.
SESSIONS, CLIENTS, ROUNDS = 2, 16, 4


@pytest.fixture
def pooled(pooler: StartPooler, settings: Settings) -> Iterator[PoolerServer]:
    """This process speaks to its database through a pooler only, and keeps leases there."""
    server = pooler(SESSIONS)
    settings.LOCKS_BACKEND = "postgres"
    connection.close()
    directly: dict[str, Any] = dict(connection.settings_dict)
    options = {name: value for name, value in directly["OPTIONS"].items() if name != "options"}
    connection.settings_dict |= {"PORT": str(server.port), "OPTIONS": options}
    yield server
    connection.close()
    connection.settings_dict |= {name: directly[name] for name in ("PORT", "OPTIONS")}


def test_many_clients_share_few_sessions_and_one_lease(pooled: PoolerServer) -> None:
    """D3 D2: each read-modify-write under the lease is alone, and fences grow with the grants."""
    new_tally()
    grants: list[int] = []
    inside: list[int] = []
    together = threading.Barrier(CLIENTS)

    def add(client: int) -> None:
        try:
            together.wait(20)
            for _ in range(ROUNDS):
                with Lease("tally", ttl=20, wait=60) as lease:
                    inside.append(client)
                    assert inside == [client]
                    grants.append(lease.fence)
                    lease.renew()
                    value = Tally.objects.get().value
                    assert fenced_update(Tally.objects.all(), lease.fence, value=value + 1) == 1
                    inside.remove(client)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(CLIENTS) as threads:
        for client in [threads.submit(add, number) for number in range(CLIENTS)]:
            client.result(timeout=90)
    assert Tally.objects.get().value == CLIENTS * ROUNDS
    assert grants == sorted(set(grants))
    assert held_leases() == []
    assert _sessions() <= SESSIONS


def _sessions() -> int:
    with connection.cursor() as cursor:
        # Of this database: others of the lab may be in use by the processes of other tests.
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE usename = current_user AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])


def test_what_ended_or_was_taken_is_known_behind_the_pooler_too(pooled: PoolerServer) -> None:
    """D1 D2 D3: whichever session each call is lent."""
    lease = Lease("a", ttl=0.4)
    assert lease.acquire()
    assert not Lease("a", ttl=5).acquire()
    successor = Lease("a", ttl=5)
    wait_until(successor.acquire, timeout=5)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert not lease.release()
    successor.renew()
    assert successor.fence > lease.fence
    new_tally()
    assert fenced_update(Tally.objects.all(), successor.fence, value=1) == 1
    assert fenced_update(Tally.objects.all(), lease.fence, value=2) == 0


def test_control_an_advisory_lock_of_a_session_is_no_lock_there(pooler: StartPooler) -> None:
    """D3 I2: two clients have it at once, and it stays when both are gone."""
    server = pooler(1)
    clients = [psycopg.connect(server.url, autocommit=True) for _ in range(2)]
    got = [client.execute("SELECT pg_try_advisory_lock(42)").fetchone() for client in clients]
    assert got == [(True,), (True,)]
    for client in clients:
        client.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(42)")
        assert cursor.fetchone() == (False,), "it did not leak"
