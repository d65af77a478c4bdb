"""Gateway and store made to disagree, and what reconciliation makes of it."""

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from inventory.models import Product
from locks import Lease, LeaseHeld
from operations import verbs
from operations.models import DeadLetter, Operation
from operations.system import system_user
from purchases import gateway, reconciliation, tasks
from purchases.models import Purchase, PurchaseState, ReconciliationMark
from purchases.repair import KIND as REPAIR
from tests.inventory.client import Api
from tests.lab.services import ValkeyServer
from tests.purchases.market import KIND, PRICE, Market


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.STRIPE_API_KEY = "sk_test_sandbox"


def run(market: Market) -> dict[str, int]:
    """Compare everything, and have what is to be repaired repaired."""
    counted = reconciliation.reconcile(seconds=30, settled=timedelta(0))
    for id in Operation.objects.filter(kind=REPAIR, state="pending").values_list("pk", flat=True):
        assert market.work(id, REPAIR).state == "done"
    return counted


def again(market: Market) -> dict[str, int]:
    """Begin from the start, as it does when everything was compared."""
    ReconciliationMark.objects.all().delete()
    return run(market)


def drifts() -> list[str]:
    letters = DeadLetter.objects.filter(category="drift", state="open")
    return sorted(letters.values_list("error_type", flat=True))


def charge(of: uuid.UUID, key: str = "") -> str:
    """A charge at the gateway that nobody here knows of."""
    made = gateway.charge(key or f"{of}:late", str(of), PRICE, "eur", "pm_card_visa")
    return made.id


def set_state(id: uuid.UUID, state: str) -> None:
    """Put an operation where no verb would have put it: that is the drift."""
    Operation.objects.filter(pk=id).update(
        state=state, finished_at=F("created_at"), due_at=None, error={}
    )


def test_where_all_agree_nothing_is_found(market: Market) -> None:
    """B11"""
    for _ in range(3):
        market.buy()
    market.buy(payment_method="pm_card_chargeDeclined")
    assert run(market) == {"repaired": 0, "reported": 0, "windows": 1}
    assert market.agrees()


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_charge_whose_operation_came_to_nothing_goes_back(market: Market, state: str) -> None:
    """B11 G2: with a purchase that holds pieces, whose charge was never confirmed."""
    market.sandbox.faults(gateway={"mode": "drop_reply"})
    id = market.order()
    market.attempt(id)
    market.sandbox.faults()
    set_state(id, state)
    assert market.stock() == (10, 1)
    assert run(market)["repaired"] >= 1
    assert [status for _, _, status in market.ledger()] == ["refunded"]
    assert market.stock() == (10, 0)
    assert market.purchase(id).state == PurchaseState.REFUNDED
    assert again(market) == {"repaired": 0, "reported": 0, "windows": 1}


def test_a_charge_that_came_after_the_release_goes_back(market: Market) -> None:
    """B11"""
    id = market.buy(payment_method="pm_card_chargeDeclined").pk
    charge(id)
    assert run(market)["repaired"] == 1
    assert sorted(status for _, _, status in market.ledger()) == ["declined", "refunded"]
    assert market.purchase(id).state == PurchaseState.RELEASED
    assert drifts() == []


def test_a_charge_of_a_refused_operation_without_a_purchase_goes_back(market: Market) -> None:
    """B11"""
    id = market.buy(quantity=11).pk
    market.buy()
    charge(id)
    assert run(market)["repaired"] == 1
    assert sorted(status for _, _, status in market.ledger()) == ["refunded", "succeeded"]


def test_pieces_held_for_an_operation_that_ended_are_released(market: Market) -> None:
    """B11: once its key cannot charge any more."""
    market.sandbox.faults(gateway={"mode": "error"})
    id = market.order()
    market.attempt(id)
    market.sandbox.faults()
    set_state(id, "failed")
    assert run(market) == {"repaired": 1, "reported": 0, "windows": 1}
    assert market.stock() == (10, 0)
    assert market.purchase(id).state == PurchaseState.RELEASED
    with pytest.raises((gateway.KeyMismatch, gateway.KeyConsumed)):
        charge(id, market.purchase(id).charge_key)


def test_an_open_and_a_dead_purchase_are_left_alone(market: Market) -> None:
    """B11: the one is being worked on, the other is an operator's."""
    market.sandbox.faults(gateway={"mode": "drop_reply"})
    being_worked_on, dead = market.order(), market.order()
    market.attempt(being_worked_on)
    market.attempt(dead)
    market.sandbox.faults()
    set_state(dead, "dead")
    assert run(market) == {"repaired": 0, "reported": 0, "windows": 1}
    assert market.stock() == (10, 2)


@pytest.mark.parametrize(
    ("drift", "make"),
    [
        ("DoneButRefunded", lambda row: gateway.refund("by-hand", row.charge)),
        ("DoneButNotCharged", lambda _: Purchase.objects.update(charge="pi_lost")),
    ],
)
def test_done_without_its_money_is_reported_once(market: Market, drift: str, make: Any) -> None:
    """B11 C2: nothing is taken from the customer by itself."""
    id = market.buy().pk
    make(market.purchase(id))
    if drift == "DoneButNotCharged":
        # The charge there is belongs to a purchase that names another: both are told.
        assert run(market)["reported"] == 2
        assert drifts() == ["ChargedTwice", drift]
    else:
        assert run(market)["reported"] == 1
        assert drifts() == ["DoneButNotPaid"]
    assert again(market)["reported"] == 0
    assert Operation.objects.get(pk=id).state == "done"


def test_a_second_charge_and_one_for_nobody_are_reported(market: Market) -> None:
    """B11"""
    id = market.buy().pk
    charge(id)
    charge(uuid.uuid4())
    assert run(market)["reported"] == 2
    assert drifts() == ["ChargedForNobody", "ChargedTwice"]
    letter = DeadLetter.objects.get(error_type="ChargedTwice")
    assert (letter.kind, letter.dependency) == (KIND, "payments")
    assert str(id) in letter.message


def test_pieces_held_for_nobody_are_reported(market: Market) -> None:
    """B11 F1"""
    market.buy()
    Product.objects.update(reserved=3)
    assert run(market)["reported"] == 1
    assert drifts() == ["HeldForNobody"]


def test_it_pages_goes_on_where_it_ended_and_keeps_to_its_time(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B11: pages of two, windows of one hour over a day."""
    monkeypatch.setattr(reconciliation, "PAGE", 2)
    ids = [market.buy().pk for _ in range(5)]
    for id in ids:
        charge(id)
    Purchase.objects.filter(operation=ids[0]).update(created_at=F("created_at") - timedelta(days=1))
    first = reconciliation.reconcile(seconds=0, settled=timedelta(0))
    assert first["windows"] == 1
    mark = ReconciliationMark.objects.get().position
    total = reconciliation.reconcile(seconds=30, settled=timedelta(0))
    assert total["windows"] >= 23
    assert ReconciliationMark.objects.get().position > mark
    assert total["reported"] == 5


def test_a_gateway_that_is_down_stops_it_where_it_is(market: Market) -> None:
    """B11 I1"""
    market.buy()
    market.sandbox.faults(gateway={"mode": "error", "reads": True})
    assert run(market) == {"repaired": 0, "reported": 0, "windows": 0}
    assert not ReconciliationMark.objects.exists()


@pytest.mark.usefixtures("cache_server")
def test_a_client_can_neither_see_nor_cancel_a_repair(market: Market) -> None:
    """B11 A8: it is the system's own, whoever bought."""
    charge(market.buy(payment_method="pm_card_chargeDeclined").pk)
    reconciliation.reconcile(seconds=30, settled=timedelta(0))
    repair = Operation.objects.get(kind=REPAIR)
    api = Api("customer")
    assert api.user == market.customer
    seen = api.get("operations").json()["results"]
    assert [operation["kind"] for operation in seen] == [KIND]
    assert api.get(f"operations/{repair.pk}").status_code == 404
    assert api.post(f"operations/{repair.pk}/cancel").status_code == 404
    assert market.work(repair.pk, REPAIR).state == "done"
    assert repair.owner is not None
    assert not repair.owner.is_active
    assert not repair.owner.has_usable_password()


@pytest.mark.parametrize("ending", ["cancelled", "done"])
@pytest.mark.parametrize("what", ["a charge", "pieces held"])
def test_a_repair_that_ended_and_mended_nothing_is_made_anew_and_then_reported(
    market: Market, ending: str, what: str
) -> None:
    """B11: cancelled by an operator, or of no use; never passed over in silence."""
    if what == "a charge":
        charge(market.buy(payment_method="pm_card_chargeDeclined").pk)
    else:
        market.sandbox.faults(gateway={"mode": "error"})
        id = market.order()
        market.attempt(id)
        market.sandbox.faults()
        set_state(id, "failed")
    found = []
    for _ in range(reconciliation.REPAIRS + 2):
        ReconciliationMark.objects.all().delete()
        found.append(reconciliation.reconcile(seconds=30, settled=timedelta(0)))
        again_at_once = reconciliation.reconcile(seconds=30, settled=timedelta(0))
        assert again_at_once["repaired"] == 0, "one is waiting already"
        for repair in Operation.objects.filter(kind=REPAIR, state="pending"):
            if ending == "cancelled":
                assert verbs.cancel(repair.pk, owner=system_user(), versions=None) is not None
            else:
                Operation.objects.filter(pk=repair.pk).update(
                    state=ending, finished_at=F("created_at"), due_at=None
                )
    repaired = [counted["repaired"] for counted in found]
    reported = [counted["reported"] for counted in found]
    assert (repaired, reported) == ([1, 1, 1, 0, 0], [0, 0, 0, 1, 0])
    assert drifts() == ["RepairedInVain"]


def test_a_lease_that_is_lost_meanwhile_ends_it_quietly(
    market: Market, locks: ValkeyServer
) -> None:
    """B11 I1: what was done is stored; the next run goes on."""
    market.buy()
    Purchase.objects.update(created_at=F("created_at") - timedelta(hours=2))
    market.sandbox.faults(gateway={"mode": "slow", "delay_s": 1, "reads": True})
    with locks.client() as client:
        wiped = threading.Timer(0.5, client.flushall)
        wiped.start()
        assert tasks.reconcile_task.run() == {}
        wiped.join()
    market.sandbox.faults()
    assert tasks.reconcile_task.run()["windows"] >= 1


def test_only_one_runs_at_a_time(market: Market) -> None:
    """B11: the others find the lease taken and leave."""
    market.buy()
    with Lease("purchases:reconciliation", ttl=5):
        assert tasks.reconcile_task.run() == {}
        with pytest.raises(LeaseHeld):
            tasks._alone()
    assert tasks.reconcile_task.run()["repaired"] == 0
