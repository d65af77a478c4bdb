"""What operators decide about drifts, in the admin, and what reconciliation makes of it."""

import uuid
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db.models import F
from django.test import Client as Browser

from inventory.models import Product
from operations import drift, verbs
from operations.models import AuditEntry, DeadLetter, Operation
from operations.system import system_user
from purchases import gateway, reconciliation
from purchases.models import PurchaseState, ReconciliationMark
from purchases.recheck import KIND as RECHECK
from purchases.repair import KIND as REPAIR
from tests.purchases.market import PRICE, Market
from tests.purchases.test_reconciliation import again, charge, drifts, run

ADDRESS = "/admin/operations/deadletter/"


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.STRIPE_API_KEY = "sk_test_sandbox"


@pytest.fixture
def browser(database: str) -> Browser:
    """Of an operator who may decide on letters, and nothing else."""
    user = User.objects.create(username="operator", is_staff=True)
    for codename in ("view_deadletter", "replay_deadletter", "discard_deadletter"):
        permission = Permission.objects.filter(codename=codename).first()
        assert permission is not None
        user.user_permissions.add(permission)
    browser = Browser()
    browser.force_login(user)
    return browser


def decide(browser: Browser, action: str, reason: str, *letters: DeadLetter) -> str:
    """Choose letters and an action; what the page says then."""
    form = {"action": action, "reason": reason, "_selected_action": [row.pk for row in letters]}
    answer = browser.post(f"{ADDRESS}?state__exact=open", form, follow=True)
    assert answer.status_code == 200
    return " ".join(str(message) for message in answer.context["messages"])


def letter(name: str = "") -> DeadLetter:
    """The open drift letter (of that name)."""
    rows = DeadLetter.objects.filter(category="drift", state="open")
    return rows.get(error_type=name) if name else rows.get()


def look_again(market: Market) -> Operation:
    """Have a worker do what a replay asked for."""
    id = Operation.objects.get(kind=RECHECK, state="pending").pk
    return market.work(id, RECHECK)


def refunded_in_part(market: Market) -> uuid.UUID:
    """A purchase that is done, and of whose money one cent went back."""
    id = market.buy().pk
    refund(market, id)
    return id


def refund(market: Market, id: uuid.UUID) -> None:
    answer = httpx.post(
        f"{settings.STRIPE_API_BASE}/v1/refunds",
        data={"payment_intent": market.purchase(id).charge, "amount": "1"},
        headers={"Authorization": "Bearer sk_test_sandbox"},
    )
    answer.raise_for_status()


def test_a_drift_that_is_discarded_is_told_again_only_when_it_changes(
    market: Market, browser: Browser
) -> None:
    """B11 C3: with a reason, by whoever has the permission; in the audit log."""
    id = refunded_in_part(market)
    assert run(market)["reported"] == 1
    assert "needs a reason" in decide(browser, "discard", " ", letter())
    told = decide(browser, "discard", "The customer kept one thing less.", letter())
    assert "1 discarded" in told
    assert "0 passed over" in told
    row = DeadLetter.objects.get()
    assert (row.state, row.reason) == ("discarded", "The customer kept one thing less.")
    assert row.decided_by is not None
    assert row.decided_by.username == "operator"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject) == ("letter.discard", f"letter:{row.pk}")
    assert (entry.author_name, entry.reason) == ("operator", row.reason)
    assert again(market)["reported"] == 0
    refund(market, id)
    assert again(market)["reported"] == 1
    assert letter().message == f"2 of {PRICE} went back."
    assert again(market)["reported"] == 0
    assert DeadLetter.objects.count() == 2


def test_a_drift_that_is_replayed_and_still_there_is_one_new_letter(
    market: Market, browser: Browser
) -> None:
    """B11"""
    refunded_in_part(market)
    run(market)
    first = letter()
    assert "1 replayed; 0 passed over" in decide(browser, "replay", "looked at it", first)
    assert drifts() == []
    assert look_again(market).result == {"repaired": 0, "reported": 1}
    assert letter().pk != first.pk
    assert again(market)["reported"] == 0
    assert drifts() == ["DoneButRefunded"]
    assert AuditEntry.objects.get().action == "letter.replay"
    assert "0 replayed" in decide(browser, "replay", "", first), "it is closed"
    assert Operation.objects.filter(kind=RECHECK).count() == 1


def test_a_drift_that_is_replayed_and_gone_stays_gone(market: Market, browser: Browser) -> None:
    """B11"""
    Product.objects.update(reserved=3)
    run(market)
    Product.objects.update(reserved=0)
    decide(browser, "replay", "mended by hand", letter("HeldForNobody"))
    assert look_again(market).result == {"repaired": 0, "reported": 0}
    assert again(market)["reported"] == 0
    Product.objects.update(reserved=3)
    assert again(market)["reported"] == 1, "what comes back is news"


def test_what_can_be_repaired_now_is_repaired_by_a_replay(market: Market, browser: Browser) -> None:
    """B11: charged for nobody known, until the operation's end is known."""
    id = market.buy().pk
    second = charge(id)
    run(market)
    assert drifts() == ["ChargedTwice"]
    # The purchase itself went back meanwhile, so that the second charge has nobody either.
    gateway.refund("by-hand", market.purchase(id).charge)
    type(market.purchase(id)).objects.update(state=PurchaseState.REFUNDED)
    Operation.objects.filter(pk=id).update(state="cancelled", result=None, error={})
    decide(browser, "replay", "", letter())
    assert look_again(market).result == {"repaired": 1, "reported": 0}
    assert market.work(Operation.objects.get(kind=REPAIR).pk, REPAIR).state == "done"
    assert gateway.retrieve(second).status == "refunded"
    assert drifts() == []


@pytest.mark.parametrize("helps", [True, False])
def test_what_was_repaired_in_vain_is_repaired_once_more(
    market: Market, browser: Browser, helps: bool
) -> None:
    """B11: and told again when that was in vain too."""
    made = charge(market.buy(payment_method="pm_card_chargeDeclined").pk)
    for _ in range(reconciliation.REPAIRS + 1):
        ReconciliationMark.objects.all().delete()
        reconciliation.reconcile(seconds=30, settled=timedelta(0))
        for repair in Operation.objects.filter(kind=REPAIR, state="pending"):
            assert verbs.cancel(repair.pk, owner=system_user(), versions=None) is not None
    assert drifts() == ["RepairedInVain"]
    decide(browser, "replay", "nobody cancels it now", letter())
    id = Operation.objects.get(kind=RECHECK).pk
    market.attempt(id, RECHECK)
    assert Operation.objects.get(pk=id).state == "pending", "it waits for the repair"
    repair = Operation.objects.get(kind=REPAIR, state="pending")
    if helps:
        assert market.work(repair.pk, REPAIR).state == "done"
    else:
        assert verbs.cancel(repair.pk, owner=system_user(), versions=None) is not None
    assert market.work(id, RECHECK).state == "done"
    assert gateway.retrieve(made).status == ("refunded" if helps else "succeeded")
    assert drifts() == ([] if helps else ["RepairedInVain"])
    assert again(market)["reported"] == 0


def test_a_gateway_that_is_down_does_not_end_the_look(market: Market, browser: Browser) -> None:
    """B11 I1: it is an operation like any other."""
    refunded_in_part(market)
    run(market)
    decide(browser, "replay", "", letter())
    market.sandbox.faults(gateway={"mode": "error", "reads": True})
    id = Operation.objects.get(kind=RECHECK).pk
    market.attempt(id, RECHECK)
    assert Operation.objects.get(pk=id).state == "pending"
    market.sandbox.faults()
    assert look_again(market).state == "done"
    assert drifts() == ["DoneButRefunded"]


def test_an_open_letter_follows_what_is_seen_and_stays_one(market: Market) -> None:
    """B11: no letter for each reading of the same drift."""
    id = refunded_in_part(market)
    run(market)
    refund(market, id)
    assert again(market)["reported"] == 0
    assert letter().message == f"2 of {PRICE} went back."
    Product.objects.update(reserved=F("reserved") + 2)
    assert again(market)["reported"] == 1
    held = letter("HeldForNobody").message
    market.sandbox.faults(gateway={"mode": "drop_reply"})
    market.attempt(market.order())
    market.sandbox.faults()
    assert market.stock()[1] == 3
    assert again(market)["reported"] == 0, "people go on buying"
    assert letter("HeldForNobody").message == held
    assert DeadLetter.objects.count() == 2


def test_nobody_else_may_decide_and_what_nobody_can_look_at_is_discarded(
    market: Market, browser: Browser
) -> None:
    """B11 C3 H6: drifts of a kind that nobody looks at again, and unreadable messages."""
    drift.report("scripted.local", "Odd", "x", "Something is odd.")
    message = DeadLetter.objects.create(
        body=b"\xff", queue="dead_letter", category="unroutable", error_type="Undecodable",
        message_id="m1", signature="s", state="open", created_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    odd = letter()
    told = decide(browser, "replay", "", odd, message)
    assert told.count("discard it") == 2
    assert not AuditEntry.objects.exists()
    assert "2 discarded" in decide(browser, "discard", "It was a test.", odd, message)
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"discarded"}
    assert AuditEntry.objects.count() == 2
    assert not drift.report("scripted.local", "Odd", "x", "Something is odd.")
    stranger = Browser()
    user = User.objects.create(username="other", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename="view_deadletter"))
    stranger.force_login(user)
    assert drift.report("scripted.local", "Odd", "x", "It is odder.")
    decide(stranger, "discard", "I may not.", letter())
    decide(stranger, "replay", "I may not.", letter())
    assert letter().message == "It is odder."


def test_what_is_not_taken_in_now_leaves_the_letter_open(market: Market, browser: Browser) -> None:
    """B11 A11: and no decision is written down."""
    from operations import controls
    from operations.audit import Author

    refunded_in_part(market)
    run(market)
    controls.change(RECHECK, Author("t"), "r", accepting=False)
    assert "not taken in" in decide(browser, "replay", "", letter())
    assert drifts() == ["DoneButRefunded"]
    assert not AuditEntry.objects.filter(action="letter.replay").exists()
    assert not Operation.objects.filter(kind=RECHECK).exists()
