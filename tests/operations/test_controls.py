"""Kinds turned down and up while everything runs."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from io import StringIO

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client as Browser
from pytest_django import Settings

from operations import controls, throttle, verbs
from operations.admission import Admission
from operations.api.kinds import KindChange
from operations.audit import Author
from operations.intake import NotAccepting, submit
from operations.models import AuditEntry, KindControl, Operation
from operations.registry import UnknownKind
from tests.lab.accepting import accept, owner
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client, new_client
from tests.operations.api.expect import problem

KIND = "scripted.local"
ME = Author("tester")

database_only = pytest.mark.django_db(transaction=True)


def change(**values: object) -> None:
    controls.change(KIND, ME, "a test", **values)


def pending(publish: bool = True) -> uuid.UUID:
    return accept(KIND, publish=publish, label="x")


def claimed(id: uuid.UUID) -> bool:
    made = verbs.claim(id, KIND, claimed_by=f"n/1.1#{uuid.uuid4()}", fifo=False)
    return made is not None


def sent(id: uuid.UUID) -> bool:
    return Operation.objects.get(pk=id).sent_at is not None


# --- what the statements make of a control ---------------------------------------------


@database_only
def test_nothing_of_a_paused_kind_is_claimed_and_nothing_counts_against_it(
    broker: ValkeyServer,
) -> None:
    """B7: a message that comes all the same is dropped; waiting is not the operation's fault."""
    id = pending()
    change(paused=True)
    assert not claimed(id)
    assert verbs.park(id, KIND) is None
    row = Operation.objects.get(pk=id)
    assert (row.sent_at, row.deferrals, row.deferred_since) == (None, 0, None)
    change(paused=False)
    assert claimed(id)


@database_only
def test_a_limited_kind_is_claimed_only_if_the_dispatcher_sent_it(broker: ValkeyServer) -> None:
    """B7: messages from before the limit, and wakes, do not go round it."""
    before = pending()
    change(max_running=1)
    assert not claimed(before)
    assert [taken.id for taken in throttle.take_due(KIND, 10)] == [before]
    after = pending()
    assert not sent(after)
    assert throttle.take_due(KIND, 10) == []
    assert claimed(before)
    assert throttle.take_due(KIND, 10) == []


@database_only
def test_a_rate_holds_with_any_number_of_dispatchers(broker: ValkeyServer) -> None:
    """B7: four of them share one rate."""
    for _ in range(100):
        pending(publish=False)
    change(rate=20)
    started = time.monotonic()
    taken: list[verbs.Envelope] = []
    errors: list[BaseException] = []
    too_early: list[float] = []

    def run() -> None:
        try:
            while len(taken) < 50 and time.monotonic() < started + 30:
                taken.extend(throttle.take_due(KIND, 100))
                # However slow this machine is, nobody is sent before his time.
                passed = time.monotonic() - started
                if len(taken) > 20 * passed + 1:
                    too_early.append(passed)
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001  (handed to the test)
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert errors == []
    assert too_early == []
    assert len(taken) >= 50, "the rate is not used"
    assert len({envelope.id for envelope in taken}) == len(taken)


@database_only
def test_a_wake_does_not_go_round_a_limit(broker: ValkeyServer) -> None:
    """B7 B10"""
    first, second = (accept(KIND, publish=False, on="r") for _ in range(2))
    row = verbs.claim(first, KIND, claimed_by="n/1.1#a", fifo=False)
    assert row is not None
    change(paused=True)
    from operations.endings import Done
    from operations.registry import get

    assert verbs.settle(row, Done(None), retention=get(KIND).key_retention) == []
    assert not sent(second)


@database_only
def test_a_switched_off_kind_takes_nothing_in_but_answers_replays(broker: ValkeyServer) -> None:
    """A11 A10"""
    user = owner()

    def post(key: str) -> bool:
        return submit(KIND, owner=user, key=key, data={}).replayed

    assert not post("known")
    change(accepting=False)
    for _ in range(2):  # the second time from memory
        with pytest.raises(NotAccepting) as refusal:
            post("new")
        assert not refusal.value.overloaded
        assert refusal.value.wait >= 10
    assert post("known")
    assert Operation.objects.count() == 1
    change(accepting=True)
    wait_until(lambda: _accepts(post), timeout=3)


def _accepts(post: object) -> bool:
    try:
        return not post(uuid.uuid4().hex)  # type: ignore[operator]
    except NotAccepting:
        return False


@database_only
def test_a_backlog_is_shed_by_depth_and_the_wait_grows_with_it(
    broker: ValkeyServer, settings: Settings
) -> None:
    """A11: critical kinds are spared."""
    settings.SEKALI_SHED_DEPTH = 3
    for _ in range(4):
        pending()
        accept("purchases.purchase", publish=False, sku="sku-1")
    Admission().judge()
    assert verbs.refused(KIND) is not None
    assert verbs.refused("purchases.purchase") is None
    row = Operation.objects.filter(kind=KIND).values().first()
    assert row is not None
    waits = []
    for size in (2_000, 20_000):
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO operations_operation (id, owner_id, kind, payload, payload_revision, "
                "resource, state, claimed_by, not_before, due_at, sent_at, effects_began, attempts,"
                " losses, bugs, deferrals, request_id, traceparent, created_at, version) "
                "SELECT gen_random_uuid(), owner_id, kind, payload, payload_revision, resource, "
                "state, claimed_by, not_before, due_at, sent_at, effects_began, attempts, losses, "
                "bugs, deferrals, request_id, traceparent, created_at, version "
                "FROM operations_operation, generate_series(1, %s) WHERE id = %s",
                [size, row["id"]],
            )
        Admission().judge()
        found = verbs.refused(KIND)
        assert found is not None
        waits.append(found[1])
    assert 10 < waits[0] < waits[1]
    Operation.objects.filter(kind=KIND).update(
        state="cancelled", finished_at="2026-01-01T00:00:00Z", due_at=None
    )
    Admission().judge()
    assert verbs.refused(KIND) is None


@database_only
def test_a_backlog_is_shed_by_age_but_not_for_an_old_one_that_is_replayed(
    broker: ValkeyServer, settings: Settings
) -> None:
    """A11: what counts is how long something waits to be begun for the first time."""
    settings.SEKALI_SHED_AGE = 60
    id = pending()
    Operation.objects.filter(pk=id).update(created_at="2020-01-01T00:00:00Z", epoch=5)
    Admission().judge()
    assert verbs.refused(KIND) is None
    Operation.objects.filter(pk=id).update(epoch=None)
    Admission().judge()
    assert verbs.refused(KIND) is not None


@database_only
def test_a_judgement_ends_with_its_dispatcher(broker: ValkeyServer) -> None:
    """A11: it fails open."""
    KindControl.objects.create(kind=KIND, shed_until="2020-01-01T00:00:00Z", wait=50)
    assert verbs.refused(KIND) is None


# --- the audit log ---------------------------------------------------------------------


@pytest.mark.django_db
def test_every_change_is_logged_and_the_log_only_grows() -> None:
    """C3: author, reason, before and after; not even a statement of ours may change it."""
    change(rate=5.0)
    change(rate=None, paused=True)
    first, second = AuditEntry.objects.order_by("pk")
    assert (first.author_name, first.subject, first.reason) == ("tester", KIND, "a test")
    off = {"accepting": True, "paused": False, "rate": None, "max_running": None}
    assert (first.before, first.after) == (off, {**off, "rate": 5})
    assert second.after == {"accepting": True, "paused": True, "rate": None, "max_running": None}
    for statement in (
        "UPDATE operations_auditentry SET reason = ''",
        "DELETE FROM operations_auditentry",
    ):
        with (
            pytest.raises(DatabaseError, match="only grows"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
    assert AuditEntry.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "values",
    [
        *({"rate": rate} for rate in (0, -1, 1e-9, 1e7, float("nan"), float("inf"), -float("inf"))),
        *({"max_running": number} for number in (0, -1, 10**7)),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(values: dict[str, float]) -> None:
    """B7"""
    with pytest.raises(ValueError, match="least"):
        change(**values)
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
def test_a_change_needs_a_reason_and_a_kind() -> None:
    """C3"""
    with pytest.raises(ValueError, match="reason"):
        controls.change(KIND, ME, "  ", paused=True)
    with pytest.raises(UnknownKind):
        controls.change("no.such", ME, "x", paused=True)
    assert not KindControl.objects.filter(paused=True).exists()


@pytest.mark.django_db
def test_the_admin_asks_for_a_reason_and_names_its_author() -> None:
    """C3 H6: every kind is there to be turned down."""
    browser = Browser()
    user = User.objects.create(username="chief", is_staff=True, is_superuser=True)
    browser.force_login(user)
    page = browser.get("/admin/operations/kindcontrol/")
    assert b"purchases.purchase" in page.content
    pk = KindControl.objects.get(kind=KIND).pk
    form = {"accepting": "on", "paused": "on", "rate": "2.5", "max_running": "", "reason": ""}
    address = f"/admin/operations/kindcontrol/{pk}/change/"
    assert browser.post(address, form).status_code == 200
    assert not AuditEntry.objects.exists()
    assert browser.post(address, {**form, "reason": "too much"}).status_code == 302
    row = KindControl.objects.get(pk=pk)
    assert (row.accepting, row.paused, row.rate, row.max_running) == (True, True, 2.5, None)
    entry = AuditEntry.objects.get()
    assert (entry.author, entry.reason) == (user, "too much")
    assert b"too much" in browser.get("/admin/operations/auditentry/").content


#: What some reader of numbers takes for a rate, and nobody means.
NO_RATES = ["nan", "NaN", "inf", "-inf", "Infinity", "1e400", "1e5", "0x1", "1_0", "٣", "+1"]
NO_RATES += [
    "-1",
    "0",
    "-0.0",
    "1e-300",
    "0.0000001",
    ".5",
    "5.",
    "",
    " 1",
    "9" * 400,
    "5/s",
    "[1]",
]


@pytest.mark.django_db
@pytest.mark.parametrize("text", NO_RATES)
def test_only_a_plain_number_is_a_rate_wherever_it_is_said(text: str) -> None:
    """B7: on the command line, in the admin, over HTTP as a string; nothing is changed."""
    for option in ("rate", "max-running"):
        with pytest.raises(CommandError, match=r"plain number|east"):
            call_command("kinds", "limit", KIND, f"--{option}={text}", "--reason=r")
    controls.make_rows()
    browser = Browser()
    browser.force_login(User.objects.create(username="c", is_staff=True, is_superuser=True))
    address = f"/admin/operations/kindcontrol/{KindControl.objects.get(kind=KIND).pk}/change/"
    for name in ("rate", "max_running"):
        if text.strip() not in ("", "1"):  # a form's field may be left empty, and is stripped
            answer = browser.post(address, {"accepting": "on", name: text, "reason": "r"})
            assert answer.status_code == 200
            assert b"errorlist" in answer.content
        field = KindChange(data={name: text, "reason": "r"})
        assert not field.is_valid()
        assert name in field.errors
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("value", [True, False, [], {}, 0, -1, 10**7, 10**400, 1e-9])
def test_only_a_plain_number_is_a_rate_in_json(value: object) -> None:
    """B7"""
    change = KindChange(data={"rate": value, "reason": "r"})
    assert not change.is_valid()
    assert "rate" in change.errors


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "rate"), [("5", 5), ("0.5", 0.5), ("0.001", 0.001), ("none", None)]
)
def test_a_plain_number_is_a_rate(text: str, rate: float | None) -> None:
    """B7"""
    change(rate=7)
    call_command("kinds", "limit", KIND, f"--rate={text}", "--reason=r", stdout=StringIO())
    assert KindControl.objects.get(kind=KIND).rate == rate


# --- running processes -----------------------------------------------------------------


def effects() -> int:
    return Effect.objects.count()


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    stack.start(workers=1, sandbox=False)
    with new_client(stack.api_url) as client:
        yield client


def test_pausing_and_limiting_take_hold_at_once_on_everything_that_runs(
    stack: Stack, client: Client
) -> None:
    """B7: from the command line, on API, dispatcher and workers."""
    shown = json.loads(stack.manage("kinds", "pause", KIND, "--reason", "r", "--json"))
    assert [(kind["kind"], kind["paused"]) for kind in shown] == [(KIND, True)]
    ids = [client.post(body={"label": "x"}).json()["id"] for _ in range(40)]
    time.sleep(1.5)
    assert effects() == 0
    stack.manage("kinds", "limit", KIND, "--rate", "5", "--reason", "r")
    started = time.monotonic()
    stack.manage("kinds", "resume", KIND, "--reason", "r")
    wait_until(lambda: effects() >= 20, timeout=15)
    assert effects() <= 5 * (time.monotonic() - started) + 6
    stack.manage("kinds", "limit", KIND, "--rate", "none", "--reason", "r")
    wait_until(lambda: effects() == len(ids), timeout=15)
    assert AuditEntry.objects.count() == 4


def test_no_more_than_the_limit_run_at_once(stack: Stack, client: Client) -> None:
    """B7: with twice as many processes to run them."""
    stack.scale_workers(2)
    change(max_running=2)
    ids = [client.post(body={"script": ["sleep:0.3"]}).json()["id"] for _ in range(10)]
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, Operation.objects.filter(state="running").count())
        return Operation.objects.filter(id__in=ids, state="done").count() == len(ids)

    wait_until(all_done, timeout=40)
    assert most == 2


def test_staff_with_the_permission_control_kinds_over_http(stack: Stack, client: Client) -> None:
    """A11 C3: and nobody else; refused is 503 with Retry-After, replays are answered."""
    address = f"/api/v1/ops/kinds/{KIND}"
    body = {"accepting": False, "reason": "too hot"}
    problem(client.http.get("/api/v1/ops/kinds"), 403, "forbidden")
    problem(client.http.patch(address, json=body), 403, "forbidden")
    user = User.objects.get(pk=client.user)
    user.is_staff = True
    user.save()
    problem(client.http.patch(address, json=body), 403, "forbidden")
    user.user_permissions.add(
        Permission.objects.get_or_create(
            codename="change_kindcontrol",
            content_type__app_label="operations",
        )[0]
    )
    assert KIND in [kind["kind"] for kind in client.http.get("/api/v1/ops/kinds").json()]
    problem(client.http.patch(address, json={"accepting": False}), 400, "invalid_request")
    for rate in ("0", "-1", "NaN", "1e400", "1e-300", '"0x1"', '"nan"', "true"):
        raw = f'{{"rate": {rate}, "reason": "r"}}'
        json_type = {"Content-Type": "application/json"}
        answer = client.http.patch(address, content=raw, headers=json_type)
        assert (rate, answer.status_code) == (rate, 400)
        assert answer.headers["Content-Type"] == "application/problem+json"
    problem(client.http.patch(address, json={**body, "speed": 1}), 400, "invalid_request")
    problem(client.http.patch("/api/v1/ops/kinds/no", json=body), 404, "not_found")
    known = client.post(key="known")
    answer = client.http.patch(address, json=body)
    assert answer.status_code == 200
    assert answer.json()["accepting"] is False
    refusal = client.post()
    problem(refusal, 503, "not_accepting")
    assert int(refusal.headers["Retry-After"]) >= 10
    replay = client.post(key="known")
    assert replay.headers["Idempotent-Replayed"] == "true"
    assert replay.json()["id"] == known.json()["id"]
    entry = AuditEntry.objects.get()
    assert (entry.author_id, entry.reason) == (client.user, "too hot")
