"""Leases in rows: what is particular to them."""

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from locks import Lease, LeaseError, LeaseUnavailable
from locks.backend import Claim, Release
from locks.models import LeaseRow
from locks.postgres import PostgresBackend, prune
from tests.lab.services import PostgresServer
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.usefixtures("fences")


@pytest.fixture(autouse=True)
def _in_rows(settings: Settings) -> None:
    settings.LOCKS_BACKEND = "postgres"


def test_acquire_renew_and_release_cost_one_statement_each() -> None:
    """D3"""
    lease = Lease("a", ttl=5)
    lease.acquire()
    lease.release()
    with CaptureQueriesContext(connection) as queries:
        lease.acquire()
        lease.renew()
        lease.release()
    assert len(queries) == 3


def test_every_call_may_use_another_session() -> None:
    """D3: as behind a pooler that lends sessions per transaction."""
    lease = Lease("a", ttl=5)
    assert lease.acquire()
    connection.close()
    lease.renew()
    connection.close()
    assert not Lease("a", ttl=5).acquire()
    connection.close()
    assert lease.release()
    connection.close()
    assert Lease("a", ttl=5).acquire()


def test_the_database_refuses_to_renew_what_has_ended_by_its_clock() -> None:
    """D1, D2: whatever the holder's clock says."""
    store, claim = PostgresBackend(), Claim("a", "me", 0.05)
    store.acquire(claim, fenced=False, wait=0)
    wait_until(lambda: not list(store.held()))
    assert store.renew([claim]) == [False]
    assert store.release("a", "me") is Release.ABSENT


def test_inside_a_transaction_it_is_refused() -> None:
    """D3: nobody else would see it before the commit."""
    lease = Lease("a", ttl=5)
    with transaction.atomic(), pytest.raises(LeaseError, match="transaction"):
        lease.acquire()
    assert not LeaseRow.objects.filter(key="a").exists()


def test_a_killed_session_costs_no_error(postgres: PostgresServer) -> None:
    """D3"""
    lease = Lease("a", ttl=5)
    lease.acquire()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    with postgres.connect() as session:
        session.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    lease.renew()
    assert lease.release()


def test_a_database_that_is_away_is_told(settings: Settings) -> None:
    """D3"""
    lease = Lease("a", ttl=5)
    connection.close()
    port = connection.settings_dict["PORT"]
    connection.settings_dict["PORT"] = "1"
    try:
        with pytest.raises(LeaseUnavailable):
            lease.acquire()
    finally:
        connection.settings_dict["PORT"] = port
    assert lease.acquire()


def test_rows_of_leases_long_over_are_pruned() -> None:
    """D3"""
    Lease("held", ttl=5).acquire()
    over = Lease("over", ttl=5)
    over.acquire()
    over.release()
    assert prune() == 0
    assert LeaseRow.objects.count() == 2
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE locks_lease SET expires_at = now() - interval '2 days' WHERE key = 'over'"
        )
    assert prune() == 1
    assert [row.key for row in LeaseRow.objects.all()] == ["held"]
