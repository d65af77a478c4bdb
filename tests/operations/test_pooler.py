"""The platform behind a pooler that lends database sessions for a transaction."""

from collections.abc import Callable

import pytest
from django.db import connection
from psycopg import sql

from operations.checks import check_session
from operations.models import Attempt, Operation
from tests.lab.pgbouncer import PoolerServer
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until
from tests.operations.api.client import new_client

StartPooler = Callable[[int], PoolerServer]

#: As docs/pooler.md says it for an installation.
_ROLE = {
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "2s",
    "statement_timeout": "30s",
    "default_transaction_isolation": "read committed",
}


def give_to_role(stack: Stack, settings: dict[str, str]) -> None:
    """For this database only, which goes with the test."""
    with stack.lab.postgres.connect() as session, connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_database()")
        names = [sql.Identifier(name) for name in cursor.fetchone()]
        for name, value in settings.items():
            session.execute(
                sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(
                    *names, sql.Identifier(name), sql.Literal(value)
                )
            )


@pytest.fixture
def pooled(stack: Stack, pooler: StartPooler) -> Callable[[dict[str, str]], Stack]:
    """A stack whose processes share six sessions, of a role with the settings given.

    In this order: sessions that the pooler has already do not change.
    """

    def put_between(settings: dict[str, str]) -> Stack:
        give_to_role(stack, settings)
        stack.env |= {"DATABASE_URL": pooler(6).url, "DATABASE_POOLED": "1"}
        return stack

    return put_between


def test_operations_are_done_once_behind_a_pooler(
    pooled: Callable[[dict[str, str]], Stack],
) -> None:
    """A3 B1 B2 B4 D3: accepted, retried, kept by heartbeat, rescued and settled."""
    stack = pooled(_ROLE)
    stack.start(workers=0, sandbox=False)
    stack.add_worker(concurrency=3)
    scripts = [["ok"]] * 12 + [["dependency", "ok"], ["kill", "ok"], ["sleep:4"], ["bug", "ok"]]
    with new_client(stack.api_url) as client:
        for number, script in enumerate(scripts):
            body = {"script": script, "on": f"r{number % 5}", "label": str(number)}
            for _ in range(2):
                assert client.post(body=body, key=str(number)).status_code in (200, 202)
    wait_until(
        lambda: Operation.objects.filter(state="done").count() == len(scripts),
        timeout=60,
        message="not all operations are done",
    )
    assert Effect.objects.count() == Operation.objects.count() == len(scripts)
    outcomes = Attempt.objects.exclude(outcome="done").values_list("outcome", flat=True)
    assert sorted(outcomes) == ["lost", "retry", "retry"]


def test_a_pooler_that_drops_the_limits_of_a_session_is_noticed(
    pooled: Callable[[dict[str, str]], Stack],
) -> None:
    """B3 D2: at the start of whatever runs Django's checks, a worker for instance."""
    stack = pooled({})
    with pytest.raises(AssertionError, match=r"E013\) lock_timeout is off"):
        stack.manage("check")
    with pytest.raises(AssertionError, match=r"ended at once(.|\n)*E013"):
        stack.add_worker()
    stack = pooled({**_ROLE, "default_transaction_isolation": "repeatable read"})
    with pytest.raises(AssertionError, match="E014"):
        stack.manage("check")


def test_sessions_without_a_pooler_have_them(database: str) -> None:
    """B3"""
    assert check_session() == []


def test_a_database_that_is_away_stops_no_command(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3"""
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    assert check_session() == []
