"""Taking a request in, without HTTP."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from operations import verbs
from operations.database import DatabaseUnavailable
from operations.intake import submit
from operations.models import IdempotencyRecord, Operation
from operations.verbs import Accepted
from tests.lab.accepting import owner
from tests.lab.services import ValkeyServer

KIND = "scripted.local"


@pytest.fixture
def user(database: str, broker: ValkeyServer) -> int:
    return owner()


def take_in(user: int, key: str = "k", **data: Any) -> Accepted:
    return submit(KIND, owner=user, key=key, data=data)


def test_a_retry_that_races_the_pruning_of_its_key_never_fails(user: int) -> None:
    """A5: the record that stood in the way is gone a moment later; then all starts again."""
    stop = threading.Event()

    def prune() -> None:
        while not stop.is_set():
            IdempotencyRecord.objects.all().delete()
        connection.close()

    pruning = [threading.Thread(target=prune) for _ in range(2)]
    for thread in pruning:
        thread.start()
    try:
        answers = [take_in(user) for _ in range(300)]
    finally:
        stop.set()
        for thread in pruning:
            thread.join(10)
    made = {answer.operation["id"] for answer in answers if not answer.replayed}
    # One operation for each time the key was new, and no answer names another one.
    assert Operation.objects.count() == len(made) > 1
    assert {answer.operation["id"] for answer in answers} == made


def test_a_caller_that_rolls_back_has_submitted_nothing(user: int, broker: ValkeyServer) -> None:
    """A7: and no message is out for it."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        take_in(user)
        raise ZeroDivisionError
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == 0
    with broker.client() as client:
        assert client.llen(KIND) == 0


def test_in_a_transaction_the_message_goes_out_with_the_commit(
    user: int, broker: ValkeyServer
) -> None:
    """A7"""
    with broker.client() as client:
        with transaction.atomic():
            accepted = take_in(user)
            assert client.llen(KIND) == 0
        assert client.llen(KIND) == 1
    assert not accepted.replayed
    assert take_in(user).replayed


def test_an_answer_that_was_lost_with_the_connection_is_found_again(
    user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3 A7: stored, then the connection dies: not a replay, not a second operation."""

    accept = verbs.accept
    lost: list[Any] = []

    def accept_and_lose(**arguments: Any) -> Any:
        row = accept(**arguments)
        if not lost:
            lost.append(row)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return row

    monkeypatch.setattr(verbs, "accept", accept_and_lose)
    accepted = take_in(user)
    assert not accepted.replayed
    assert accepted.operation["id"] == lost[0]["id"]
    assert Operation.objects.count() == 1


def test_a_lock_that_does_not_come_is_told(user: int) -> None:
    """A3: bounded, and nothing is half stored."""
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE operations_idempotencyrecord IN ACCESS EXCLUSIVE MODE")
            locked.set()
            release.wait(15)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert locked.wait(5)
        with pytest.raises(DatabaseUnavailable):
            take_in(user)
    finally:
        release.set()
        holder.join(10)
    assert Operation.objects.count() == 0
    assert not take_in(user).replayed
