"""The guarded statements, one by one, on real PostgreSQL and several connections."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from operations import registry, verbs
from operations.claim import Claim
from operations.endings import Dead, Defer, Done, Failure, Retry
from operations.errors import ClaimLost
from operations.models import Attempt, Category, DeadLetter, IdempotencyRecord, Operation
from operations.models.operation import ONE_RUNNING_PER_RESOURCE
from tests.lab.accepting import accept, owner
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

FAILURE = Failure(Category.BUG, "RuntimeError", "boom", signature="0" * 64)
RETENTION = timedelta(hours=1)


def claim(id: uuid.UUID, kind: str = "scripted.local", by: str = "node/1.1#a") -> Claim:
    row = verbs.claim(id, kind, claimed_by=by, fifo=registry.get(kind).fifo)
    assert row is not None
    return Claim(row, registry.get(kind))


def expire(id: uuid.UUID) -> None:
    """As if the claim had gone without a heartbeat for its whole TTL."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE operations_operation SET due_at = statement_timestamp() WHERE id = %s", [id]
        )


def state_of(id: uuid.UUID) -> str:
    return Operation.objects.values_list("state", flat=True).get(pk=id)


@contextmanager
def without(sql: str) -> Iterator[None]:
    """Take a guard out of the schema for the rest of the test database's life."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
    yield


def in_thread(work: Callable[[], Any]) -> "tuple[threading.Thread, list[Any]]":
    """Run on a connection of its own; the answer, or the exception, comes in the list."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        except Exception as error:  # noqa: BLE001  (handed to the test)
            answers.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answers


def test_accept_inserts_operation_and_record_or_neither() -> None:
    """A2 A3: the second accept of a key inserts nothing at all."""
    first = accept(publish=False, key="k")
    with pytest.raises(AssertionError):
        accept(publish=False, key="k")
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == 1
    found = verbs.find_by_key(owner=owner(), kind="scripted.local", key="k")
    assert found is not None
    assert found.operation["id"] == first
    assert IdempotencyRecord.objects.get().replays == 1


def test_keys_of_two_owners_or_two_kinds_are_two_keys() -> None:
    """A3: (owner, kind, key) is unique, and no less."""
    ids = {
        accept(publish=False, key="k"),
        accept(publish=False, key="k", user=owner("other")),
        accept("scripted.fifo", publish=False, key="k", on="x"),
    }
    assert len(ids) == 3


def test_seq_grows_in_the_order_of_acceptance() -> None:
    """B10."""
    ids = [accept(publish=False) for _ in range(5)]
    assert list(Operation.objects.order_by("seq").values_list("id", flat=True)) == ids


def test_a_claim_takes_an_operation_once() -> None:
    """B1: five deliveries, one claim."""
    id = accept(publish=False)
    claims = [
        verbs.claim(id, "scripted.local", claimed_by=f"n/1.1#{n}", fifo=False) for n in range(5)
    ]
    assert [row is not None for row in claims] == [True, False, False, False, False]
    assert Operation.objects.get(pk=id).attempts == 1


def test_epochs_grow_across_operations() -> None:
    """D2: fencing tokens of two operations can be compared."""
    first, second = accept(publish=False), accept(publish=False)
    assert claim(second).epoch < claim(first).epoch


def test_a_claim_waits_for_not_before() -> None:
    """B6: a stray duplicate cannot start a retry early."""
    id = accept(publish=False)
    verbs.settle(claim(id).row, Retry(FAILURE, 60), retention=RETENTION)
    assert verbs.claim(id, "scripted.local", claimed_by="n/1.1#b", fifo=False) is None
    assert verbs.park(id, "scripted.local") is None  # not due, so not parked either


def test_a_message_of_another_kind_claims_nothing() -> None:
    id = accept(publish=False)
    assert verbs.claim(id, "scripted.fifo", claimed_by="n/1.1#b", fifo=True) is None


def test_a_lost_answer_to_a_claim_is_found_again() -> None:
    """B1: the claim of this very delivery is ours, whatever became of the connection."""
    id = accept(publish=False)
    mine = claim(id, by="n/1.1#mine")
    assert verbs.claim_made(id, claimed_by="n/1.1#other") is None
    found = verbs.claim_made(id, claimed_by="n/1.1#mine")
    assert found is not None
    assert found.epoch == mine.epoch


def test_a_busy_resource_parks_and_its_end_wakes_the_next_only() -> None:
    """D5 B10: one of many waiting is woken, the eldest."""
    ids = [accept(publish=False, on="r") for _ in range(4)]
    running = claim(ids[0])
    for id in ids[1:]:
        assert verbs.claim(id, "scripted.local", claimed_by="n/1.1#b", fifo=False) is None
        assert verbs.park(id, "scripted.local") is False
    woken = verbs.settle(running.row, Done(None), retention=RETENTION)
    assert [envelope.id for envelope in woken] == [ids[1]]


def test_two_claims_of_one_resource_at_once_make_one_running() -> None:
    """D2 I1: the second claim waits for the first to commit, and then fails on the index."""
    first, second = accept(publish=False, on="r"), accept(publish=False, on="r")
    with transaction.atomic():
        claim(first)
        thread, answers = in_thread(lambda: claim(second))
        thread.join(0.3)
        assert thread.is_alive(), "the second claim did not wait for the first"
    thread.join(5)
    assert isinstance(answers[0], IntegrityError)
    assert isinstance(answers[0].__cause__, psycopg.Error)
    assert answers[0].__cause__.diag.constraint_name == ONE_RUNNING_PER_RESOURCE
    assert Operation.objects.filter(state="running").count() == 1


def test_control_without_the_index_two_run_at_once(database: str) -> None:
    """I2: the same race with the unique index taken out."""
    first, second = accept(publish=False, on="r"), accept(publish=False, on="r")
    with without(f"DROP INDEX {ONE_RUNNING_PER_RESOURCE}"):
        with transaction.atomic():
            claim(first)
            thread, answers = in_thread(lambda: claim(second))
            thread.join(5)
        assert isinstance(answers[0], Claim)
        assert Operation.objects.filter(state="running").count() == 2


def test_claim_and_wake_of_the_same_row_do_not_deadlock() -> None:
    """D2: the claim holds its row and waits for the index; the wake passes it by."""
    first, second = accept(publish=False, on="r"), accept(publish=False, on="r")
    verbs.park(second, "scripted.local")
    with transaction.atomic():
        running = claim(first)
        thread, answers = in_thread(lambda: claim(second))
        thread.join(0.3)
        assert thread.is_alive(), "the second claim did not wait for the first"
        assert verbs.settle(running.row, Done(None), retention=RETENTION) == []
    thread.join(5)
    assert isinstance(answers[0], Claim), answers


def test_fifo_does_not_overtake_an_older_open_row() -> None:
    """B10: also while the elder waits for its retry."""
    elder, younger = (accept("scripted.fifo", publish=False, on="r") for _ in range(2))
    assert verbs.claim(younger, "scripted.fifo", claimed_by="n/1.1#b", fifo=True) is None
    row = claim(elder, "scripted.fifo").row
    assert verbs.settle(row, Retry(FAILURE, 60), retention=RETENTION) == []
    assert verbs.claim(younger, "scripted.fifo", claimed_by="n/1.1#b", fifo=True) is None
    assert verbs.take_due(["scripted.fifo"], 10) == [], "it would be delivered for nothing"


def test_without_fifo_the_younger_goes_first_while_the_elder_waits() -> None:
    """B10, the default order."""
    elder, younger = (accept(publish=False, on="r") for _ in range(2))
    woken = verbs.settle(claim(elder).row, Retry(FAILURE, 60), retention=RETENTION)
    assert [envelope.id for envelope in woken] == [younger]
    claim(younger)


def test_settle_needs_the_epoch_and_writes_nothing_without_it() -> None:
    """D2: whoever lost the claim can neither settle nor fence, and its effects are gone."""
    id = accept("scripted.split", publish=False)
    stale = claim(id, "scripted.split")
    expire(id)
    verbs.rescue_expired()
    fresh = claim(id, "scripted.split", by="node/2.2#b")
    with pytest.raises(ClaimLost), stale.fenced():
        Effect.objects.create(operation_id=id, epoch=stale.epoch)
    for ending in (Done(None), Retry(FAILURE, 0), Dead(FAILURE)):
        with pytest.raises(ClaimLost):
            verbs.settle(stale.row, ending, retention=RETENTION)
    with pytest.raises(ClaimLost):
        verbs.defer(stale.row, Defer(1, "", began=True))
    assert not verbs.keep(stale.row)
    assert state_of(id) == "running"
    assert Effect.objects.count() == 0
    assert Attempt.objects.get().outcome == "lost"
    with fresh.fenced():
        Effect.objects.create(operation_id=id, epoch=fresh.epoch)
        fresh.finish()
    assert state_of(id) == "done"


def test_control_without_the_epoch_a_stale_worker_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: the fence without its epoch lets the effect through twice."""
    guard = "AND epoch = %(epoch)s"
    assert guard in verbs._FENCE
    monkeypatch.setattr(verbs, "_FENCE", verbs._FENCE.replace(guard, ""))
    id = accept("scripted.split", publish=False)
    stale = claim(id, "scripted.split")
    expire(id)
    verbs.rescue_expired()
    fresh = claim(id, "scripted.split", by="node/2.2#b")
    for holder in (fresh, stale):
        with holder.fenced():
            Effect.objects.create(operation_id=id, epoch=holder.epoch)
    assert Effect.objects.count() == 2


def test_done_commits_with_the_effect_or_not_at_all() -> None:
    """B2: an error after the effect and before the end takes the effect back."""
    id = accept(publish=False)
    held = claim(id)
    with pytest.raises(ZeroDivisionError), held.fenced():
        Effect.objects.create(operation_id=id, epoch=held.epoch)
        held.finish()
        raise ZeroDivisionError
    assert (state_of(id), Effect.objects.count(), held.ended) == ("running", 0, None)


def test_deferring_before_the_handler_began_leaves_no_trace_of_the_claim() -> None:
    """B1 D2: so that an operation that never ran can still be cancelled."""
    id = accept(publish=False)
    verbs.defer(claim(id).row, Defer(0, "", began=False))
    row = Operation.objects.get(pk=id)
    assert (row.epoch, row.attempts, row.started_at, row.deferrals) == (None, 0, None, 1)
    assert row.deferred_since is not None
    assert verbs.cancel(id, owner=owner(), versions=None) is not None


def test_deferring_a_later_claim_restores_the_epoch_of_the_earlier() -> None:
    id = accept(publish=False)
    first = claim(id)
    verbs.settle(first.row, Retry(FAILURE, 0), retention=RETENTION)
    verbs.defer(claim(id).row, Defer(0, "", began=False))
    row = Operation.objects.get(pk=id)
    assert (row.epoch, row.attempts) == (first.epoch, 1)


def test_the_third_loss_is_a_dead_letter() -> None:
    """B8 C1 C2: with its times and key."""
    id = accept(publish=False, key="the-key")
    for _ in range(3):
        assert state_of(id) == "pending"
        claim(id)
        expire(id)
        verbs.rescue_expired()
    assert state_of(id) == "dead"
    letter = DeadLetter.objects.get()
    assert (letter.category, letter.idempotency_key, letter.attempts) == (
        "worker_lost",
        "the-key",
        3,
    )
    assert letter.first_processed_at is not None
    assert letter.last_processed_at is not None
    assert letter.first_processed_at < letter.last_processed_at
    assert Attempt.objects.filter(outcome="lost").count() == 3


def test_a_death_notice_rescues_the_claims_of_that_process_only() -> None:
    """B8: not those of a process that got the same number later."""
    mine, later = accept(publish=False), accept(publish=False)
    claim(mine, by="node/7.100#a")
    claim(later, by="node/7.200#a")
    freed, _ = verbs.rescue_claims_of("node/7.100")
    assert [lost.id for lost in freed] == [mine]
    assert (state_of(mine), state_of(later)) == ("pending", "running")


def test_handing_back_is_not_counted() -> None:
    id = accept(publish=False)
    claim(id, by="node/7.100#a")
    verbs.hand_back("node/7.100")
    row = Operation.objects.get(pk=id)
    assert (row.state, row.attempts, row.losses, row.sent_at) == ("pending", 0, 0, None)


def test_cancel_takes_only_what_was_never_claimed() -> None:
    id = accept(publish=False)
    assert verbs.cancel(id, owner=owner("other"), versions=None) is None
    assert verbs.cancel(id, owner=owner(), versions=[7]) is None
    assert verbs.cancel(id, owner=owner(), versions=[1]) is not None
    assert state_of(id) == "cancelled"
    tried = accept(publish=False)
    verbs.settle(claim(tried).row, Retry(FAILURE, 0), retention=RETENTION)
    assert verbs.cancel(tried, owner=owner(), versions=None) is None


def test_cancel_and_claim_of_one_operation_have_one_winner() -> None:
    """I1: whichever comes second finds nothing."""
    user = owner()
    for _ in range(20):
        id = accept(publish=False)
        taking = partial(verbs.claim, id, "scripted.local", claimed_by="n/1.1#x", fifo=False)
        thread, answers = in_thread(taking)
        cancelled = verbs.cancel(id, owner=user, versions=None)
        thread.join(5)
        assert (cancelled is None) == (answers[0] is not None)


def test_replay_gives_a_dead_operation_all_its_chances_again() -> None:
    """C4: the same operation, once, and only while its letter is open."""
    id = accept(publish=False)
    held = claim(id)
    verbs.settle(held.row, Dead(FAILURE), retention=RETENTION)
    letter = DeadLetter.objects.get()
    by = owner("operator")
    assert verbs.replay(letter.pk, by=by, reason="mended")
    assert not verbs.replay(letter.pk, by=by)
    row = Operation.objects.get(pk=id)
    assert (row.state, row.attempts, row.bugs, row.error) == ("pending", 0, 0, None)
    letter.refresh_from_db()
    assert (letter.state, letter.decided_by_id, letter.reason) == ("replayed", by, "mended")


def _dead(kind: str, *, effects: bool) -> tuple[uuid.UUID, DeadLetter]:
    id = accept(kind, publish=False, on="r")
    held = claim(id, kind)
    if effects:
        with held.fenced():
            pass
    verbs.settle(held.row, Dead(FAILURE), retention=RETENTION)
    return id, DeadLetter.objects.get(operation=id)


def test_discard_without_effects_cancels_at_once() -> None:
    """C3."""
    id, letter = _dead("scripted.split", effects=False)
    answer = verbs.discard(
        letter.pk,
        compensation="scripted.split.compensate",
        compensation_id=uuid.uuid4(),
        retention=RETENTION,
        by=owner("operator"),
        reason="not wanted",
    )
    assert (answer, state_of(id)) == ("discarded", "cancelled")


def test_discard_with_effects_compensates_first() -> None:
    """C3: and no replay in between."""
    id, letter = _dead("scripted.split", effects=True)
    compensation = uuid.uuid4()
    by = owner("operator")
    answer = verbs.discard(
        letter.pk,
        compensation="scripted.split.compensate",
        compensation_id=compensation,
        retention=RETENTION,
        by=by,
        reason="undo it",
    )
    assert (answer, state_of(id)) == ("discarding", "dead")
    assert not verbs.replay(letter.pk, by=by)
    undo = Operation.objects.get(pk=compensation)
    assert (undo.resource, undo.owner_id, undo.payload) == ("r", None, {"operation": str(id)})
    held = claim(compensation, "scripted.split.compensate")
    with held.fenced():
        held.finish()
    letter.refresh_from_db()
    assert (state_of(id), letter.state, state_of(compensation)) == (
        "cancelled",
        "discarded",
        "done",
    )


def test_the_schema_refuses_combinations_that_make_no_sense() -> None:
    """F1: CHECK constraints are the last fence."""
    id = accept(publish=False)
    for change in (
        "state = 'lost'",
        "state = 'running'",
        "state = 'done'",
        "due_at = NULL",
        "error = '{}'",
        "result = '{}'",
        "attempts = -1",
    ):
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(f"UPDATE operations_operation SET {change} WHERE id = %s", [id])


def test_a_stopped_transaction_does_not_hold_rows_against_its_successor() -> None:
    """D2: idle in a transaction, the session is ended by the server."""
    id = accept(publish=False)
    held = claim(id)
    stopped = connection.copy()

    def kept() -> bool:
        try:
            return verbs.keep(held.row)
        except OperationalError:  # lock_timeout: a wait for a row is bounded, too
            return False

    stopped.connect()
    try:
        with stopped.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE operations_operation SET version = 9 WHERE id = %s", [id])
        assert not kept()
        wait_until(kept, timeout=10)
        assert Operation.objects.get(pk=id).version == 2
    finally:
        stopped.close()
