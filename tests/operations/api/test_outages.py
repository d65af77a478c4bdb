"""What a client sees while something behind the API is away."""

import secrets
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from django.db import connection as django_connection

from operations.models import IdempotencyRecord, Operation
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.services import DATABASE
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client, new_client
from tests.operations.api.expect import problem


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    stack.start(workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        client.post(key="first")
        yield client


def many(client: Client, count: int, threads: int = 8) -> list[tuple[int, float]]:
    """Status and seconds of as many new requests."""

    def one(_: int) -> tuple[int, float]:
        started = time.monotonic()
        status = client.post(key=secrets.token_hex(8)).status_code
        return status, time.monotonic() - started

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(count)))


def p99(answers: list[tuple[int, float]]) -> float:
    times = sorted(seconds for _, seconds in answers)
    return times[int(len(times) * 0.99) - 1]


def test_a_restarted_database_is_not_noticed(client: Client, stack: Stack) -> None:
    """I1 A7: every kept connection is dead, and no request fails for it."""
    assert {status for status, _ in many(client, 40)} == {202}
    stack.lab.postgres.restart()
    assert {status for status, _ in many(client, 40)} == {202}
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'sekali-api' AND datname = current_database()"
        )
    assert client.get("/api/v1/operations").status_code == 200
    assert {status for status, _ in many(client, 40)} == {202}


def test_a_database_that_is_down_is_told_and_nothing_is_half_stored(
    client: Client, stack: Stack
) -> None:
    """A7 I1: 503 with Retry-After; the same request goes through afterwards, once."""
    keys = [secrets.token_hex(8) for _ in range(20)]
    stack.lab.postgres.kill()
    started = time.monotonic()
    for key in keys:
        answer = client.post(key=key)
        problem(answer, 503, "unavailable")
        assert int(answer.headers["Retry-After"]) >= 1
    for path in ("/api/v1/operations", f"/api/v1/operations/{uuid.uuid4()}"):
        problem(client.get(path), 503, "unavailable")
    assert time.monotonic() - started < 10
    assert client.get("/healthz").status_code == 200
    not_ready = problem(client.get("/readyz"), 503, "unavailable")
    assert (not_ready["database"], not_ready["broker"]) == ("does not answer", "ok")
    stack.lab.postgres.start()
    django_connection.close()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    for key in keys:
        assert client.post(key=key).status_code == 202
        assert "Idempotent-Replayed" in client.post(key=key).headers
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == len(keys) + 1


def test_requests_in_flight_while_the_database_dies_are_stored_once_or_not_at_all(
    client: Client, stack: Stack
) -> None:
    """A3 A7: whatever the client was told, sending it again leads to one operation."""
    stop = threading.Event()
    sent: list[tuple[str, int]] = []

    def send() -> None:
        while not stop.is_set():
            key = secrets.token_hex(8)
            sent.append((key, client.post(key=key).status_code))

    def more_sent() -> None:
        enough = len(sent) + 20
        wait_until(lambda: len(sent) > enough)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        more_sent()
        stack.lab.postgres.kill()
        stack.lab.postgres.start()
    more_sent()
    stop.set()
    django_connection.close()
    for thread in threads:
        thread.join(30)
    assert {status for _, status in sent} <= {202, 503}
    accepted = {key for key, status in sent if status == 202}
    for key, _ in sent:
        assert client.post(key=key).status_code == 202
    assert accepted <= set(IdempotencyRecord.objects.values_list("key", flat=True))
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == len(sent) + 1


@pytest.mark.parametrize("state", ["down", "frozen"])
def test_a_broker_that_is_away_does_not_matter(client: Client, stack: Stack, state: str) -> None:
    """A1 A7: all are accepted, within a bound; each is owed to the broker or found lost."""
    many(client, 16)
    server = stack.lab.broker
    if state == "down":
        server.kill()
    else:
        server.stop()
    answers = many(client, 200)
    assert {status for status, _ in answers} == {202}
    assert p99(answers) < 3
    not_ready = problem(client.get("/readyz"), 503, "unavailable")
    assert (not_ready["database"], not_ready["broker"] == "ok") == ("ok", False)
    assert client.get("/healthz").status_code == 200
    # While publishing pauses, the dispatcher owes it at once.
    assert Operation.objects.filter(sent_at=None).count() > 100
    server.recover()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    stack.start(apis=1, workers=1, dispatchers=1, sandbox=False)
    total = Operation.objects.count()
    wait_until(lambda: Operation.objects.filter(state="done").count() == total, timeout=60)
    assert Effect.objects.count() == total


def test_a_black_hole_at_the_brokers_address_costs_a_bound(stack: Stack) -> None:
    """A1: connections that are accepted and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        stack.env["BROKER_URL"] = f"redis://127.0.0.1:{hole.getsockname()[1]}/0"
        stack.start(workers=0, dispatchers=0, sandbox=False)
        with new_client(stack.api_url) as client:
            answers = many(client, 100)
    assert {status for status, _ in answers} == {202}
    assert p99(answers) < 3


@pytest.mark.parametrize("point", ["accept.stored", "accept.published"])
def test_an_api_killed_after_the_commit_loses_nothing(stack: Stack, point: str) -> None:
    """A7 I1: the client sends it again and gets the same operation; the effect happens once."""
    crash = Crash(stack)
    stack.start(apis=1, workers=1, dispatchers=1, sandbox=False)
    with new_client(stack.api_url) as client:
        crash.arm(point)
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(body={"label": "x"}, key="k")
        crash.wait(point)
        api = stack.apis[0]
        api.discard()
        api.start()
        again = client.post(body={"label": "x"}, key="k")
        assert again.status_code in (200, 202)
        assert again.headers["Idempotent-Replayed"] == "true"
        location = again.headers["Location"]
        wait_until(lambda: client.get(location).json()["state"] == "done", timeout=20)
    assert Operation.objects.count() == Effect.objects.count() == 1


def test_a_client_that_hangs_up_does_not_stop_what_has_begun(client: Client, stack: Stack) -> None:
    """A7: it is stored, and the same request finds it."""
    head = client.head("Idempotency-Key: k", "Content-Type: application/json", "Content-Length: 2")
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        session.autocommit = False
        session.execute("LOCK TABLE operations_idempotencyrecord IN ACCESS EXCLUSIVE MODE")
        with client.connect() as connection:
            connection.sendall(head + b"{}")
            with stack.lab.postgres.connect(f"{DATABASE}_one") as other:
                waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
                wait_until(lambda: other.execute(waiting).fetchone(), timeout=5)
        session.rollback()
    wait_until(lambda: IdempotencyRecord.objects.filter(key="k").exists(), timeout=5)
    assert "Idempotent-Replayed" in client.post(key="k").headers


def test_a_bug_is_a_problem_without_details_and_a_line_in_the_log(
    client: Client, stack: Stack
) -> None:
    """H2: the request id leads from one to the other."""
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        session.execute("ALTER TABLE operations_operation RENAME COLUMN losses TO lost")
    answer = client.post(headers={"X-Request-ID": "bug-1"})
    body = problem(answer, 500, "internal_error")
    assert body["request_id"] == "bug-1"
    assert "losses" not in answer.text
    lines = [line for line in stack.apis[0].output().splitlines() if "bug-1" in line]
    assert any("losses" in line and "Traceback" in line for line in lines)
