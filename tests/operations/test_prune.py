"""Forgetting after the published time, and never under a retry's feet (A5)."""

import threading
import uuid
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from locks import Lease
from locks.models import LeaseRow
from operations import prune, registry, verbs
from operations.claim import Claim
from operations.endings import Dead, Done, Failure
from operations.models import Attempt, Category, DeadLetter, IdempotencyRecord, Operation
from tests.lab.accepting import accept, owner

pytestmark = pytest.mark.django_db(transaction=True)

KIND = "scripted.local"


def end(id: uuid.UUID, ending: Done | Dead) -> None:
    kind = registry.get(KIND)
    row = verbs.claim(id, KIND, claimed_by="n/1.1#a", fifo=False)
    assert row is not None
    verbs.settle(Claim(row, kind).row, ending, retention=kind.key_retention)


def age(seconds: float) -> None:
    """Let all that is stored become older."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE operations_idempotencyrecord SET created_at = created_at - %(age)s::interval,"
            " expires_at = expires_at - %(age)s::interval",
            {"age": f"{seconds} seconds"},
        )
        cursor.execute(
            "UPDATE operations_operation SET created_at = created_at - %(age)s::interval,"
            " finished_at = finished_at - %(age)s::interval",
            {"age": f"{seconds} seconds"},
        )


def test_a_key_is_kept_for_its_time_counted_from_the_end() -> None:
    """A5: not from acceptance: a retry may come long after a slow operation ended."""
    end(accept(publish=False), Done(None))
    age(settings.SEKALI_KEY_RETENTION - 60)
    assert prune.prune()["keys"] == 0
    age(120)
    assert prune.prune()["keys"] == 1
    assert Operation.objects.count() == 1  # the operation itself is kept longer


def test_open_operations_and_unsettled_letters_keep_their_keys() -> None:
    """A5: whatever their age."""
    accept(publish=False)
    end(
        accept(publish=False),
        Dead(Failure(Category.BUG, "RuntimeError", "boom", signature="0" * 64)),
    )
    age(10 * settings.SEKALI_OPERATION_RETENTION)
    assert prune.prune() == {"keys": 0, "operations": 0, "leases": 0}


def test_an_operation_goes_with_its_children_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A5: children first, in batches."""
    monkeypatch.setattr(prune, "BATCH", 3)
    for _ in range(8):
        end(accept(publish=False), Done(None))
    letter = accept(publish=False)
    end(letter, Dead(Failure(Category.BUG, "RuntimeError", "boom", signature="0" * 64)))
    verbs.replay(DeadLetter.objects.get().pk, by=owner("operator"))
    end(letter, Done(None))
    kept = accept(publish=False)
    end(kept, Done(None))
    monkeypatch.setattr(prune, "_first_id_at", lambda _: kept)
    age(2 * settings.SEKALI_OPERATION_RETENTION)
    assert prune.prune() == {"keys": 10, "operations": 9, "leases": 0}
    assert [operation.id for operation in Operation.objects.all()] == [kept]
    assert Attempt.objects.count() == 1
    assert DeadLetter.objects.count() == 0


def test_rows_of_leases_long_over_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: in batches; what is held, or was until lately, stays."""
    monkeypatch.setattr(prune, "BATCH", 3)
    for number in range(8):
        lease = Lease(f"over-{number}", ttl=30, backend="postgres")
        lease.acquire()
        lease.release()
    LeaseRow.objects.update(expires_at=Now() - timedelta(days=2))
    Lease("held", ttl=30, backend="postgres").acquire()
    lately = Lease("lately", ttl=30, backend="postgres")
    lately.acquire()
    lately.release()
    assert prune.prune() == {"keys": 0, "operations": 0, "leases": 8}
    assert {row.key for row in LeaseRow.objects.all()} == {"held", "lately"}


def test_a_retry_that_races_the_pruning_is_a_replay_or_a_new_operation() -> None:
    """A5: there is no moment at which it is neither, and never two for one key."""
    user = owner()
    for round in range(10):
        key = f"k{round}"
        end(accept(publish=False, key=key), Done(None))
        age(2 * settings.SEKALI_KEY_RETENTION)
        answers: list[object] = []

        def retry(key: str = key, answers: list[object] = answers) -> None:
            try:
                for _ in range(5):
                    found = verbs.find_by_key(owner=user, kind=KIND, key=key)
                    if found is not None:
                        answers.append("replayed")
                        continue
                    try:
                        accept(publish=False, key=key)
                        answers.append("accepted")
                    except AssertionError:
                        answers.append("lost the race")
            finally:
                connection.close()

        threads = [threading.Thread(target=retry) for _ in range(3)]
        for thread in threads:
            thread.start()
        prune.prune()
        for thread in threads:
            thread.join(20)
        assert len(answers) == 15
        assert answers.count("accepted") <= 1
        assert IdempotencyRecord.objects.filter(key=key).count() <= 1
