"""What an attempt costs, counted on the wire."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from operations.broker import get_broker
from operations.models import Operation
from operations.verbs import Envelope
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.proxy import Proxy
from tests.lab.services import DATABASE
from tests.lab.waiting import wait_until

OPERATIONS = 30


@pytest.fixture
def observer(stack: Stack) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A session of another user, whose own statements are told apart."""
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        yield session


def run(stack: Stack, observer: psycopg.Connection[tuple[object, ...]], kind: str) -> None:
    """Have a worker make an attempt at each of some operations, and nothing else."""
    with observer.cursor() as cursor:
        warm_up = accept(kind, on="warm-up")
        _wait_for(observer, [warm_up])
        ids = [accept(kind, publish=False, on=f"r{n}") for n in range(OPERATIONS)]
        cursor.execute("SELECT pg_stat_statements_reset()")
        with stack.lab.locks.client() as client:
            client.config_resetstat()
        get_broker().publish([Envelope(id, kind) for id in ids])
        _wait_for(observer, ids)


def _wait_for(observer: psycopg.Connection[tuple[object, ...]], ids: list[uuid.UUID]) -> None:
    done = "SELECT count(*) FROM operations_operation WHERE state = 'done' AND id = ANY(%s)"
    wait_until(lambda: observer.execute(done, [ids]).fetchone() == (len(ids),), timeout=30)


def statements(observer: psycopg.Connection[tuple[object, ...]]) -> dict[str, float]:
    """Calls of each statement of the platform's user, an operation."""
    rows = observer.execute(
        "SELECT query, calls FROM pg_stat_statements AS s JOIN pg_roles AS r ON r.oid = s.userid "
        # The server's own look at a foreign key, at COMMIT, is not on the wire.
        "WHERE query NOT LIKE '%%FROM ONLY%%' AND r.rolname <> current_user AND s.dbid = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    counted: dict[str, float] = {}
    for query, calls in rows:
        text = " ".join(str(query).split())
        counted[text] = counted.get(text, 0) + int(str(calls)) / OPERATIONS
    return counted


def test_an_attempt_with_local_effects_costs_five_statements_and_two_round_trips(
    stack: Stack, observer: psycopg.Connection[tuple[object, ...]]
) -> None:
    """B2: claim, BEGIN, the effect, settle with its attempt row, COMMIT; lease and release."""
    stack.start(apis=0, workers=1, dispatchers=0, sandbox=False)
    run(stack, observer, "scripted.local")
    counted = statements(observer)
    starts = ("UPDATE operations_operation", "BEGIN", "INSERT", "WITH freed", "COMMIT")
    assert {
        start: sum(calls for text, calls in counted.items() if text.startswith(start))
        for start in starts
    } == dict.fromkeys(starts, 1.0)
    assert sum(counted.values()) == len(starts), list(counted)
    with stack.lab.locks.client() as client:
        scripts = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert scripts == 2 * OPERATIONS


def test_workers_keep_their_database_sessions(
    stack: Stack, observer: psycopg.Connection[tuple[object, ...]]
) -> None:
    """B2: fewer than one session opened in twenty tasks."""
    stack.start(apis=0, workers=1, dispatchers=0, sandbox=False)
    sessions = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
    _wait_for(observer, [accept() for _ in range(10)])

    def opened() -> int:
        observer.execute("SELECT pg_stat_force_next_flush()")
        row = observer.execute(sessions).fetchone()
        assert row is not None
        return int(str(row[0]))

    before = opened()
    ids = [accept() for _ in range(200)]
    _wait_for(observer, ids)
    assert opened() - before < 0.05 * len(ids)


def test_a_message_on_redis_costs_one_round_trip_where_others_wait(stack: Stack) -> None:
    """B2: the look for the next one acknowledges the last."""
    with Proxy(stack.broker_url) as wire:
        stack.env["BROKER_URL"] = wire.url
        stack.start(apis=0, workers=0, dispatchers=0, sandbox=False)
        worker = stack.add_worker(concurrency=1)
        warm_up = accept()
        wait_until(lambda: Operation.objects.get(pk=warm_up).state == "done")
        worker.stop()
        ids = [accept() for _ in range(100)]
        wire.requests.clear()
        worker.cont()
        done = Operation.objects.filter(id__in=ids, state="done")
        wait_until(lambda: done.count() == len(ids), timeout=30)
        assert len(wire.requests) < 1.2 * len(ids)
