"""Single statements, persistently."""

import pytest
from django.db import OperationalError, connection, transaction

from operations.database import CONTENTION_TRIES, DatabaseUnavailable, persistently
from operations.executor import Outcome, execute
from operations.models import Attempt
from tests.lab.accepting import accept

RAISE = "DO $$ BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '{code}'; END $$"


class Statement:
    """Fails as often as it is told, by a real error of the server, then answers 42."""

    def __init__(self, code: str, failures: int) -> None:
        self.code = code
        self.failures = failures
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        with connection.cursor() as cursor:
            if self.calls <= self.failures:
                cursor.execute(RAISE.format(code=self.code))
            cursor.execute("SELECT 42")
            return int(cursor.fetchone()[0])


@pytest.fixture(autouse=True)
def fresh(database: str) -> None:
    """Each on a connection of its own."""


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_who_loses_against_others_tries_again_a_bounded_number_of_times(code: str) -> None:
    """A3"""
    assert persistently(Statement(code, CONTENTION_TRIES - 1)) == 42
    hopeless = Statement(code, 10_000)
    with pytest.raises(DatabaseUnavailable):
        persistently(hopeless)
    assert hopeless.calls == CONTENTION_TRIES
    assert persistently(Statement(code, 0)) == 42


@pytest.mark.parametrize("code", ["55P03", "57014", "53100"])
def test_what_waiting_does_not_mend_is_told_at_once(code: str) -> None:
    """A3: a lock that did not come, a statement that took too long, a full disk."""
    statement = Statement(code, 10_000)
    with pytest.raises(DatabaseUnavailable):
        persistently(statement)
    assert statement.calls == 1


class Dying:
    """Has its connection ended by the server as often as it is told, then answers 42."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths

    def __call__(self) -> int:
        with connection.cursor() as cursor:
            if self.deaths:
                self.deaths -= 1
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            cursor.execute("SELECT 42")
            return int(cursor.fetchone()[0])


def test_a_connection_that_died_is_made_anew_once() -> None:
    """A7"""
    connection.ensure_connection()
    assert persistently(Dying(1)) == 42
    with pytest.raises(DatabaseUnavailable):
        persistently(Dying(2))
    assert persistently(Dying(0)) == 42


def test_in_a_transaction_nothing_is_tried_again() -> None:
    """A3: what came before in it is gone with the error."""
    statement = Statement("40001", 1)
    with pytest.raises(OperationalError), transaction.atomic():
        persistently(statement)
    assert statement.calls == 1


@pytest.mark.usefixtures("broker", "locks")
@pytest.mark.parametrize("kind", ["scripted.local", "scripted.split"])
@pytest.mark.parametrize("code", ["55P03", "40P01", "57014"])
def test_in_a_handler_it_is_the_database_that_failed(kind: str, code: str) -> None:
    """C1: in a transaction or out of it, it is retried, and never called a bug."""
    id = accept(kind, publish=False, script=[f"raise:{code}"])
    assert execute(id, kind, process="test/1.1") is Outcome.RETRY
    attempt = Attempt.objects.get(operation_id=id)
    assert (attempt.category, attempt.dependency) == ("dependency", "database")
