"""What waits behind a dead operation, where a kind says ``behind_dead="wait"``."""

import threading
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from uuid_utils.compat import uuid7

from operations import controls, registry, review, verbs
from operations.admission import Admission
from operations.audit import Author
from operations.behind_dead import with_waiting
from operations.claimed_row import ClaimedRow
from operations.endings import Dead, Done, Failure, Retry
from operations.models import Category, DeadLetter, Operation
from tests.lab.accepting import accept, owner
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

KIND = "scripted.strict"
SPLIT = "scripted.strict-split"
FAILURE = Failure(Category.BUG, "RuntimeError", "boom", signature="0" * 64)
RETENTION = timedelta(hours=1)

database_only = pytest.mark.django_db(transaction=True)


# --- with workers ------------------------------------------------------------------------


def accept_three(kind: str, first_script: list[str]) -> list[uuid.UUID]:
    return [
        accept(kind, on="r", label="first", script=first_script),
        accept(kind, on="r", label="second"),
        accept(kind, on="r", label="third"),
    ]


def wait_dead(id: uuid.UUID) -> DeadLetter:
    wait_until(lambda: Operation.objects.get(pk=id).state == "dead", timeout=20)
    return DeadLetter.objects.get(operation=id)


def wait_for_end_of(*ids: uuid.UUID) -> None:
    wait_until(
        lambda: not Operation.objects.filter(id__in=ids, finished_at=None).exists(),
        timeout=20,
        message="not all operations have ended",
    )


def wait_put_off(*ids: uuid.UUID) -> None:
    """Until dispatcher and workers have looked at them, and let them be."""
    wait_until(
        lambda: (
            Operation.objects.filter(
                id__in=ids, state="pending", sent_at=None, deferred_since=None, due_at__gt=Now()
            ).count()
            == len(ids)
        ),
        timeout=20,
        message="they are not put off",
    )


def labels() -> list[str]:
    effects = Effect.objects.exclude(label="reserved").order_by("id")
    return list(effects.values_list("label", flat=True))


def test_the_order_is_kept_behind_a_dead_one_and_over_its_replay(stack: Stack) -> None:
    """B10 C4: nothing passes it; replayed it goes first, and the others follow at once.

    The control, with the other choice: ``test_in_fifo_a_dead_one_lets_those_behind_it_pass``.
    """
    stack.start(apis=0, sandbox=False, workers=2)
    first, second, third = accept_three(KIND, ["payload"])
    letter = wait_dead(first)
    wait_put_off(second, third)
    wait_for_end_of(accept(KIND, on="other"))
    assert not Operation.objects.filter(id__in=(second, third), epoch__isnull=False).exists()
    Operation.objects.filter(pk=first).update(payload={"script": ["ok"], "label": "first"})
    assert review.replay(letter, by=owner())
    wait_for_end_of(first, second, third)
    assert labels() == ["", "first", "second", "third"]
    assert set(Operation.objects.values_list("state", flat=True)) == {"done"}


def test_a_discard_lets_the_next_one_go(stack: Stack) -> None:
    """B10 C3: within moments, though it has been put off for long."""
    stack.start(apis=0, sandbox=False)
    first, second, third = accept_three(KIND, ["payload"])
    letter = wait_dead(first)
    wait_put_off(second, third)
    Operation.objects.filter(id__in=(second, third)).update(due_at=Now() + timedelta(hours=1))
    assert review.discard(letter, by=owner(), reason="not wanted") == "discarded"
    wait_for_end_of(second, third)
    assert labels() == ["second", "third"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_discard_that_compensates_lets_the_next_one_go_afterwards(
    stack: Stack, killed: bool
) -> None:
    """B10 C3 I1: also when the worker dies between the last commit and the next message."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False)
    first, second, third = accept_three(SPLIT, ["payload"])
    letter = wait_dead(first)
    wait_put_off(second, third)
    if killed:
        crash.arm("settle.committed")
    assert review.discard(letter, by=owner(), reason="undo it") == "discarding"
    wait_for_end_of(second, third)
    assert labels() == ["second", "third"]
    undone = Operation.objects.get(kind=f"{SPLIT}.compensate").finished_at
    began = Operation.objects.get(pk=second).started_at
    assert undone is not None
    assert began is not None
    assert undone < began
    assert Operation.objects.get(pk=first).state == "cancelled"
    if killed:
        crash.wait("settle.committed")


@pytest.mark.parametrize(
    ("kind", "kept"), [(KIND, True), pytest.param("scripted.fifo", False, id="control")]
)
def test_the_order_of_many_through_deaths_and_decisions(
    stack: Stack, kind: str, kept: bool
) -> None:
    """B10 C4 I2: two of eight die on each of three resources; one is replayed, one given up."""
    stack.start(apis=0, sandbox=False, workers=2)
    ids = [
        accept(kind, on=f"r{on}", label=f"{on}.{n}", script=["payload" if n in (2, 5) else "ok"])
        for n in range(8)
        for on in range(3)
    ]
    mended = {"script": ["ok"]}

    def decided() -> bool:
        for letter in DeadLetter.objects.filter(state="open").select_related("operation"):
            operation = letter.operation
            assert operation is not None
            if operation.payload["label"].endswith(".2"):
                operation.payload |= mended
                operation.save(update_fields=["payload"])
                review.replay(letter, by=owner())
            else:
                review.discard(letter, by=owner(), reason="no")
        return Operation.objects.filter(id__in=ids, state__in=("done", "cancelled")).count() == 24

    wait_until(decided, timeout=40, every=0.5, message="not all are done or given up")
    of_each = [[label for label in labels() if label.startswith(f"{on}.")] for on in range(3)]
    expected = [[f"{on}.{n}" for n in range(8) if n != 5] for on in range(3)]
    assert [sorted(made) for made in of_each] == expected
    assert (of_each == expected) == kept


# --- statement by statement --------------------------------------------------------------


def claim(id: uuid.UUID, kind: str = KIND) -> ClaimedRow | None:
    claimed_by = f"n/1.1#{uuid.uuid4()}"
    return verbs.claim(id, kind, claimed_by=claimed_by, fifo=registry.get(kind).fifo)


def put_in(kind: str = KIND, on: str = "r") -> uuid.UUID:
    return accept(kind, publish=False, on=on)


def kill(id: uuid.UUID, kind: str = KIND) -> list[verbs.Envelope]:
    """Have it die; what was woken by that."""
    row = claim(id, kind)
    assert row is not None
    return verbs.settle(row, Dead(FAILURE), retention=RETENTION)


def letter_of(id: uuid.UUID) -> DeadLetter:
    return DeadLetter.objects.get(operation=id)


def discard(id: uuid.UUID) -> str | None:
    return review.discard(letter_of(id), by=owner(), reason="no")


def due(*kinds: str) -> list[uuid.UUID]:
    kinds = kinds or tuple(kind.name for kind in registry.kinds())
    return [envelope.id for envelope in verbs.take_due(kinds, 100)]


@database_only
def test_it_is_neither_woken_nor_sent_nor_claimed() -> None:
    """B10: not by the death itself, not by the dispatcher, not by a stray message."""
    first, second = put_in(), put_in()
    assert kill(first) == []
    assert due() == []
    assert claim(second) is None
    third = accept(KIND, publish=False, on="r")
    assert Operation.objects.get(pk=third).sent_at is None
    assert due() == []


@database_only
def test_control_where_they_pass_the_next_is_woken() -> None:
    """B10 I2: the same, with the other choice."""
    first, second = put_in("scripted.fifo"), put_in("scripted.fifo")
    assert [envelope.id for envelope in kill(first, "scripted.fifo")] == [second]
    assert claim(second, "scripted.fifo") is not None


@database_only
def test_control_without_the_claims_guard_it_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """B10 I2: the other statements only save messages; this one keeps the order."""
    guard = verbs._behind_dead("o")
    assert guard in verbs._CLAIM
    monkeypatch.setattr(verbs, "_CLAIM", verbs._CLAIM.replace(guard, "false"))
    first, second = put_in(), put_in()
    kill(first)
    assert claim(second) is not None


@database_only
def test_a_death_by_rescue_wakes_nobody_either() -> None:
    """B10 B8"""
    first, _second = put_in(), put_in()
    for _ in range(3):
        assert claim(first) is not None
        Operation.objects.filter(pk=first).update(due_at=Now())
        _, woken = verbs.rescue_expired()
    assert Operation.objects.get(pk=first).state == "dead"
    assert woken == []


@database_only
def test_a_new_one_behind_a_dead_one_is_not_sent_at_once() -> None:
    """B10: the API leaves it to the dispatcher, which leaves it alone."""
    kill(put_in())
    with pytest.raises(AssertionError):
        # It would have been published, and was told not to.
        assert _accepted_as_sent(KIND)
    assert _accepted_as_sent("scripted.fifo")


def _accepted_as_sent(kind: str) -> bool:
    id = uuid7()
    accepted = verbs.accept(
        id=id,
        owner=owner(),
        kind=kind,
        key=str(id),
        fingerprint="",
        fingerprint_version=1,
        payload={},
        payload_revision=1,
        resource="r",
        precondition=None,
        retention=RETENTION,
        send=True,
    )
    assert accepted is not None
    return bool(accepted["sent"])


@database_only
def test_waiting_for_a_person_is_no_waiting_for_the_resource() -> None:
    """B10 C2: however long it lasts, it does not end as a dead letter of category lock."""
    first, second, third = put_in(), put_in(), put_in()
    long_ago = Now() - timedelta(days=2)
    kill(first)
    Operation.objects.filter(id__in=(second, third)).update(deferred_since=long_ago)
    verbs.give_up_waiting(second, FAILURE)
    assert verbs.park(second, KIND) is False
    assert verbs.put_off(10) == 1
    for waiting in Operation.objects.filter(id__in=(second, third)):
        assert (waiting.state, waiting.deferrals, waiting.deferred_since) == ("pending", 0, None)
    assert verbs.put_off(10) == 0


@database_only
def test_the_longer_it_waits_the_less_often_it_is_looked_at() -> None:
    """B10: between the delay of what is parked and five minutes."""
    kill(put_in())
    for age, least, most in ((0, 0, 1), (100, 9, 11), (86_400, 299, 301)):
        id = put_in()
        Operation.objects.filter(pk=id).update(created_at=Now() - timedelta(seconds=age))
        verbs.put_off(10)
        row = Operation.objects.annotate(left=F("due_at") - Now()).get(pk=id)
        assert least <= row.left.total_seconds() <= most


@database_only
def test_the_replayed_one_goes_first_and_its_end_wakes_the_next() -> None:
    """B10 C4: whatever becomes of it on the way."""
    first, second = put_in(), put_in()
    kill(first)
    verbs.put_off(10)
    assert review.replay(letter_of(first), by=owner())
    assert due() == [first]
    row = claim(first)
    assert row is not None
    assert claim(second) is None
    assert verbs.settle(row, Retry(FAILURE, 0), retention=RETENTION) == []
    assert claim(second) is None
    again = claim(first)
    assert again is not None
    woken = verbs.settle(again, Done(None), retention=RETENTION)
    assert [envelope.id for envelope in woken] == [second]


@database_only
def test_a_client_may_cancel_what_waits() -> None:
    """B10: and that lets nobody pass."""
    first, second, third = put_in(), put_in(), put_in()
    kill(first)
    cancelled = verbs.cancel(second, owner=owner(), versions=None)
    assert cancelled is not None
    assert cancelled[1] == []
    assert discard(first) == "discarded"
    assert due() == [third]


@database_only
def test_only_the_last_decision_lets_the_next_go() -> None:
    """B10: with two dead before it."""
    first, second, third = put_in(), put_in(), put_in()
    Operation.objects.filter(pk=second).update(deferred_since="2020-01-01T00:00:00Z")
    verbs.give_up_waiting(second, FAILURE)
    kill(first)
    verbs.put_off(10)
    assert discard(first) == "discarded"
    assert due() == []
    assert discard(second) == "discarded"
    assert due() == [third]


@database_only
def test_a_discard_under_way_holds_them_until_it_is_done() -> None:
    """B10 C3: the compensation itself, accepted later, passes them."""
    first, second = put_in(SPLIT), put_in(SPLIT)
    Operation.objects.filter(pk=first).update(effects_began=True)
    kill(first, SPLIT)
    assert discard(first) == "discarding"
    (undo,) = due()
    compensation = f"{SPLIT}.compensate"
    assert Operation.objects.get(pk=undo).kind == compensation
    row = claim(undo, compensation)
    assert row is not None
    assert claim(second, SPLIT) is None
    with transaction.atomic():
        verbs.finish_discard(first, retention=RETENTION)
        woken = verbs.settle(row, Done(None), retention=RETENTION)
    assert [envelope.id for envelope in woken] == [second]


@database_only
def test_others_on_the_resource_do_not_wait_and_are_not_held_up() -> None:
    """B10: whoever keeps no order is sent past those that wait."""
    kill(put_in())
    waiting, other = put_in(), put_in("scripted.local")
    assert due() == [other]
    assert claim(other, "scripted.local") is not None
    assert claim(waiting) is None


@database_only
def test_it_waits_behind_whatever_is_dead_on_its_resource_and_nowhere_else() -> None:
    """B10: of any kind; not of another resource, not accepted later."""
    kill(put_in(on="other"))
    earlier = put_in()
    woken = kill(put_in("scripted.local"), "scripted.local")
    later = put_in()
    assert [envelope.id for envelope in woken] == [earlier]
    assert claim(earlier) is not None
    assert claim(later) is None


@database_only
def test_what_a_decision_makes_due_is_not_put_off_by_who_looked_before() -> None:
    """B10 I1: the parking waits for the row, and finds that somebody has decided."""
    first, second = put_in(), put_in()
    kill(first)
    answers: list[bool | None] = []

    def park() -> None:
        try:
            answers.append(verbs.park(second, KIND))
        finally:
            connection.close()

    thread = threading.Thread(target=park)
    with transaction.atomic():
        assert discard(first) == "discarded"
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "the parking did not wait"
    thread.join(5)
    assert answers == [None]
    assert due() == [second]


@database_only
def test_a_row_that_a_decision_could_not_touch_is_found_by_its_due_time() -> None:
    """B10 I1: it was locked in that very moment."""
    first, second = put_in(), put_in()
    kill(first)
    verbs.put_off(10)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT FROM operations_operation WHERE id = %s FOR UPDATE", [second])
            assert discard(first) == "discarded"
    finally:
        other.close()
    assert due() == []
    wait_until(lambda: due() == [second], timeout=5)


@database_only
@pytest.mark.parametrize("held", ["paused", "rate"])
def test_a_kind_that_is_held_becomes_due_instead_of_being_woken(held: str) -> None:
    """B7 B10: the dispatcher sends it when it may, and has not to wait until it looks again."""
    first, second = put_in(), put_in()
    kill(first)
    verbs.put_off(10)
    Operation.objects.filter(pk=second).update(due_at=Now() + timedelta(hours=1))
    assert review.replay(letter_of(first), by=owner())
    row = claim(first)
    assert row is not None
    author = Author("tester", owner())
    controls.change(KIND, author, "slower", **{held: True if held == "paused" else 1.0})
    assert verbs.settle(row, Done(None), retention=RETENTION) == []
    assert due() == [second]


@database_only
def test_where_no_kind_keeps_an_order_everything_works_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B10: as in an installation that declares none."""
    monkeypatch.setattr(registry, "fifo", list)
    monkeypatch.setattr(registry, "waiting", list)
    kind = "scripted.local"
    first, second, third = (put_in(kind) for _ in range(3))
    assert due() == [first]
    assert [envelope.id for envelope in kill(first, kind)] == [second]
    assert verbs.park(third, kind) is False
    assert verbs.put_off(10) == 0
    letters = with_waiting(DeadLetter.objects.all())
    assert list(letters.values_list("waiting", flat=True)) == [0]
    assert {report.behind_dead for report in controls.report()} == {0}
    Admission().judge()
    assert discard(first) == "discarded"
    row = claim(second, kind)
    assert row is not None
    woken = verbs.settle(row, Done(None), retention=RETENTION)
    assert [envelope.id for envelope in woken] == [third]


# --- for people --------------------------------------------------------------------------


@database_only
def test_operators_see_who_waits_for_their_decision() -> None:
    """H6 B10: on the letter, in the list of letters, on what waits, and among the kinds."""
    first, second = put_in(), put_in()
    put_in(on="elsewhere")
    kill(first)
    letter = letter_of(first)
    Operation.objects.filter(pk=second).update(created_at=Now() - timedelta(days=2))
    admin = Client()
    admin.force_login(User.objects.create_superuser("root"))
    for page in (
        "/admin/operations/deadletter/",
        f"/admin/operations/deadletter/{letter.pk}/change/",
    ):
        text = admin.get(page).content.decode()
        assert "Waiting behind it" in text
        assert '<td class="field-waiting">1</td>' in text or '<div class="readonly">1</div>' in text
    page = admin.get(f"/admin/operations/operation/{second}/change/").content.decode()
    assert f"{KIND} {first}" in page
    page = admin.get(f"/admin/operations/operation/{first}/change/").content.decode()
    assert f"{KIND} {first}" not in page.split("Waits for a decision about")[1]
    (report,) = (kind for kind in controls.report() if kind.kind == KIND)
    assert (report.pending, report.behind_dead) == (2, 1)
    assert report.oldest < 60
    assert discard(first) == "discarded"
    assert "Waiting behind it" in admin.get("/admin/operations/deadletter/").content.decode()
    (report,) = (kind for kind in controls.report() if kind.kind == KIND)
    assert report.behind_dead == 0


@database_only
def test_a_dead_letter_does_not_have_its_whole_kind_refused() -> None:
    """A11: the age of what waits behind it is no sign of too much load."""
    kill(put_in())
    for id in (put_in(), put_in("scripted.fifo", on="x")):
        Operation.objects.filter(pk=id).update(created_at=Now() - timedelta(days=2))
    Admission().judge()
    assert verbs.refused(KIND) is None
    assert verbs.refused("scripted.fifo") is not None
