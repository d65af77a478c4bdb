"""``/healthz`` and ``/readyz``."""

import time
from collections.abc import Iterator

import pytest

from tests.lab.processes import Stack
from tests.lab.services import DATABASE
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client, new_client
from tests.operations.api.expect import problem


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    stack.env["SEKALI_API_THREADS"] = "2"
    stack.start(workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        client.http.headers.pop("Authorization")
        yield client


def test_both_are_fine_when_all_is_there(client: Client) -> None:
    """A1: without token, whatever the Host, by HEAD too."""
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz", {"Host": "10.1.2.3"})
    assert ready.status_code == 200
    assert ready.json() == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "broker": "ok",
    }
    assert client.http.head("/readyz").status_code == 200


def test_a_missing_migration_is_told(client: Client, stack: Stack) -> None:
    """A1"""
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        row = session.execute(
            "DELETE FROM django_migrations WHERE id = (SELECT max(id) FROM django_migrations) "
            "RETURNING app, name, applied"
        ).fetchone()
        not_ready = problem(client.get("/readyz"), 503, "unavailable")
        assert not_ready["migrations"] == "1 not applied"
        assert not_ready["database"] == "ok"
        session.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", row
        )
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("part", ["database", "broker"])
def test_what_is_frozen_is_told_in_time_and_alive_is_still_alive(
    client: Client, stack: Stack, part: str
) -> None:
    """A1 I1: also while every thread waits for the database."""
    server = stack.lab.postgres if part == "database" else stack.lab.broker
    assert client.get("/readyz").status_code == 200
    server.stop()
    started = time.monotonic()
    for _ in range(2):
        not_ready = problem(client.get("/readyz"), 503, "unavailable")
        assert not_ready[part] != "ok"
        assert part in not_ready["detail"]
        assert client.get("/healthz").status_code == 200
    assert time.monotonic() - started < 8
    server.cont()
    wait_until(lambda: client.get("/readyz").status_code == 200, timeout=15)
