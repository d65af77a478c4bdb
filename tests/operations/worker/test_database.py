"""Workers whose database connections are cut, or whose database restarts."""

import uuid

import pytest
from django.db import connection

from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.services import DATABASE
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B2", "I1")


def all_done(ids: list[uuid.UUID], timeout: float = 30) -> None:
    wait_until(
        lambda: Operation.objects.filter(id__in=ids, state="done").count() == len(ids),
        timeout=timeout,
        message="not all are done",
    )
    for id in ids:
        assert Effect.objects.filter(operation_id=id, label="").count() == 1


def test_sessions_cut_between_attempts_cost_no_attempt(stack: Stack) -> None:
    """B2: the first statement of an attempt is repeated on a new connection."""
    stack.start(apis=0, sandbox=False)
    for _ in range(5):
        all_done([accept() for _ in range(6)])
        with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'sekali-worker'"
            )
    all_done([accept() for _ in range(6)])
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"done"}


def test_a_database_that_restarts_under_load_loses_and_doubles_nothing(stack: Stack) -> None:
    """B2 I1: whoever waits for it waits, and what it had not committed is made again."""
    stack.start(apis=0, sandbox=False)
    ids = [accept(script=["sleep:0.1"], publish=n % 2 > 0) for n in range(60)]
    ids += [accept("scripted.split", script=["sleep:1"]) for _ in range(2)]
    wait_until(lambda: Operation.objects.filter(state="done").count() > 5)
    stack.lab.postgres.kill()
    stack.lab.postgres.start()
    connection.close()  # ours is gone as well
    all_done(ids, timeout=60)
    assert stack.workers[0].is_running
    assert stack.dispatchers[0].is_running


def test_a_database_that_takes_no_changes_is_waited_for(stack: Stack) -> None:
    """B2 I1: a standby, or maintenance: nobody's bug, and nobody's loss."""
    stack.start(apis=0, sandbox=False)
    ids = [accept(script=["sleep:0.3"]) for _ in range(6)]
    name = f"{DATABASE}_one"
    with stack.lab.postgres.connect(name) as session:
        session.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name IN ('sekali-worker', 'sekali-dispatcher')"
        )
        wait_until(lambda: "read-only transaction" in stack.dispatchers[0].output(), timeout=15)
        ids += [accept() for _ in range(4)]
        session.execute("SET default_transaction_read_only = off")
        session.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    all_done(ids)
    assert not Operation.objects.filter(bugs__gt=0).exists()
    assert not Operation.objects.filter(losses__gt=0).exists()
    assert "raised unexpected" not in stack.workers[0].output()
