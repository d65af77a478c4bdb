"""Giving a purchase up: money back, pieces back, and no late charge."""

import random
import uuid
from datetime import timedelta

import pytest

from operations.executor import Outcome
from operations.models import DeadLetter, Operation
from operations.registry import COMPENSATION_SUFFIX
from purchases import gateway
from tests.purchases.market import KIND, PRICE, Market
from tests.sandbox.process import API_KEY, SandboxProcess

COMPENSATION = KIND + COMPENSATION_SUFFIX


@pytest.fixture
def unpaid(market: Market) -> uuid.UUID:
    """A dead purchase that no call to the gateway came of: reserved, with key 1 unused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.STRIPE_API_BASE", "http://127.0.0.1:9")
        operation = market.buy(quantity=2)
    assert operation.state == "dead"
    assert market.purchase(operation.pk).key_number == 1
    return operation.pk


@pytest.fixture
def paid(market: Market) -> uuid.UUID:
    """A dead purchase that is charged; no attempt ever got an answer."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "reads": True})
    operation = market.buy(quantity=2)
    market.sandbox.faults()
    assert operation.state == "dead"
    assert market.ledger() == [(f"{operation.pk}:1", 2 * PRICE, "succeeded")]
    return operation.pk


def undone(market: Market, id: uuid.UUID, state: str) -> None:
    """The purchase is given up, nothing is held, and all parts agree."""
    assert Operation.objects.get(pk=id).state == "cancelled"
    assert DeadLetter.objects.get(operation_id=id).state == "discarded"
    assert market.purchase(id).state == state
    assert market.stock() == (10, 0)
    assert market.agrees()


@pytest.mark.req("G2", "C3")
def test_what_was_not_charged_is_only_released(market: Market, unpaid: uuid.UUID) -> None:
    """G2 C3."""
    compensation = market.work(market.discard(unpaid), COMPENSATION)

    assert (compensation.state, compensation.result) == ("done", {"refunded": False})
    assert market.ledger() == []
    undone(market, unpaid, "released")


@pytest.mark.req("G2", "C3")
def test_what_was_charged_is_refunded(market: Market, paid: uuid.UUID) -> None:
    """G2 C3."""
    compensation = market.work(market.discard(paid), COMPENSATION)

    assert compensation.result == {"refunded": True}
    assert market.ledger() == [(f"{paid}:1", 2 * PRICE, "refunded")]
    undone(market, paid, "refunded")


@pytest.mark.req("G2", "D2")
def test_an_orphan_cannot_charge_after_the_compensation(market: Market, unpaid: uuid.UUID) -> None:
    """G2 D2: the key in its hand is burnt, and it must not take another."""
    market.work(market.discard(unpaid), COMPENSATION)

    with pytest.raises(gateway.KeyMismatch):
        gateway.charge(f"{unpaid}:1", str(unpaid), 2 * PRICE, "eur", "pm_card_visa")

    assert market.ledger() == []


@pytest.mark.req("I2")
def test_without_the_burning_the_orphan_charges(
    market: Market, unpaid: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: the control of the test above."""
    monkeypatch.setattr("purchases.compensation._burn", lambda _: None)
    market.work(market.discard(unpaid), COMPENSATION)

    gateway.charge(f"{unpaid}:1", str(unpaid), 2 * PRICE, "eur", "pm_card_visa")

    with pytest.raises(AssertionError):
        market.agrees()


@pytest.mark.req("G2", "I1")
@pytest.mark.parametrize("mode", ["drop_reply", "error"])
@pytest.mark.parametrize("call", ["find", "refund"])
def test_a_refund_is_made_once_whichever_call_fails(
    market: Market, paid: uuid.UUID, mode: str, call: str
) -> None:
    """G2 I1: also when the answer to the refund itself is lost."""
    id = market.discard(paid)
    fail_call(market, 1 if call == "find" else 2, mode)
    assert market.attempt(id, COMPENSATION) == Outcome.RETRY
    was_made = (mode, call) == ("drop_reply", "refund")
    assert [status for *_, status in market.ledger()] == ["refunded" if was_made else "succeeded"]
    market.sandbox.faults()

    assert market.work(id, COMPENSATION).state == "done"
    assert refunds(market, paid) == [2 * PRICE]
    undone(market, paid, "refunded")


@pytest.mark.req("G2", "I1")
@pytest.mark.parametrize("mode", ["drop_reply", "error"])
@pytest.mark.parametrize("call", ["create", "cancel", "find"])
def test_a_key_is_burnt_whichever_call_fails(
    market: Market, unpaid: uuid.UUID, mode: str, call: str
) -> None:
    """G2 I1: no charge can be made under it afterwards."""
    id = market.discard(unpaid)
    fail_call(market, ["create", "cancel", "find"].index(call) + 1, mode)
    assert market.attempt(id, COMPENSATION) == Outcome.RETRY
    market.sandbox.faults()

    assert market.work(id, COMPENSATION).state == "done"
    with pytest.raises((gateway.KeyMismatch, gateway.KeyConsumed)):
        gateway.charge(f"{unpaid}:1", str(unpaid), 2 * PRICE, "eur", "pm_card_visa")
    assert market.ledger() == []
    undone(market, unpaid, "released")


@pytest.mark.req("G2", "I1")
def test_a_refund_key_that_is_used_up_is_passed_over(market: Market, paid: uuid.UUID) -> None:
    """G2 I1: the gateway stored a failure under the first one."""
    id = market.discard(paid)
    market.sandbox.faults(gateway={"mode": "error", "count": 1})
    assert market.attempt(id, COMPENSATION) == Outcome.RETRY
    assert market.ledger()[0][2] == "succeeded"

    assert market.work(id, COMPENSATION).state == "done"
    assert refunds(market, paid) == [2 * PRICE]
    undone(market, paid, "refunded")


@pytest.mark.req("G2")
def test_what_people_refunded_already_is_not_refunded_again(
    market: Market, paid: uuid.UUID
) -> None:
    """G2."""
    gateway.refund("by hand", gateway.find(str(paid), market.purchase(paid).created_at)[0].id)

    compensation = market.work(market.discard(paid), COMPENSATION)

    assert compensation.result == {"refunded": True}
    assert refunds(market, paid) == [2 * PRICE]
    undone(market, paid, "refunded")


@pytest.mark.req("B11")
def test_every_charge_of_the_purchase_is_refunded(market: Market, paid: uuid.UUID) -> None:
    """B11: also one that should never have been made, and under a forgotten key."""
    gateway.charge("stray", str(paid), 2 * PRICE, "eur", "pm_card_visa")
    market.sandbox.http.post("/gateway/forget", json={}).raise_for_status()

    assert market.work(market.discard(paid), COMPENSATION).state == "done"

    assert [status for *_, status in market.ledger()] == ["refunded", "refunded"]
    undone(market, paid, "refunded")


@pytest.mark.req("G2")
def test_a_payment_that_waits_for_the_customer_is_cancelled(
    market: Market, market_sandbox: SandboxProcess, unpaid: uuid.UUID
) -> None:
    """G2: nobody may confirm it later."""
    waiting = market_sandbox.pay(
        "waiting",
        payment_method="pm_card_authenticationRequired",
        **{"metadata[operation_id]": str(unpaid)},
    ).json()

    market.work(market.discard(unpaid), COMPENSATION)

    assert gateway.retrieve(waiting["id"]).status == "cancelled"
    undone(market, unpaid, "released")


@pytest.mark.req("G2", "C1")
def test_a_compensation_that_cannot_be_done_is_a_dead_letter_and_can_be_replayed(
    market: Market, paid: uuid.UUID
) -> None:
    """G2 C1: nothing is said to be undone before it is."""
    market.sandbox.faults(gateway={"mode": "error", "reads": True})
    compensation = market.work(market.discard(paid), COMPENSATION)
    assert compensation.state == "dead"
    assert Operation.objects.get(pk=paid).state == "dead"
    assert market.stock() == (10, 2)
    market.sandbox.faults()

    market.replay(compensation.pk)

    assert market.work(compensation.pk, COMPENSATION).state == "done"
    undone(market, paid, "refunded")


@pytest.mark.req("G2")
def test_a_late_attempt_of_the_purchase_changes_nothing(market: Market, paid: uuid.UUID) -> None:
    """G2 B1: a stray message after the end."""
    id = market.discard(paid)
    assert market.attempt(paid) == Outcome.DUPLICATE
    market.work(id, COMPENSATION)

    assert market.attempt(paid) == Outcome.DUPLICATE
    assert market.attempt(id, COMPENSATION) == Outcome.DUPLICATE
    undone(market, paid, "refunded")


def refunds(market: Market, id: uuid.UUID) -> list[int]:
    """The amounts that went back for a purchase."""
    since = market.purchase(id).created_at - timedelta(minutes=1)
    found = []
    for charge in gateway.find(str(id), since):
        answer = market.sandbox.http.get(
            "/gateway/v1/refunds",
            params={"payment_intent": charge.id},
            headers={"Authorization": f"Bearer {API_KEY}"},
        )
        found += [refund["amount"] for refund in answer.json()["data"]]
    return found


def fail_call(market: Market, number: int, mode: str) -> None:
    """Have this call of the next attempt fail, and none before it."""
    for seed in range(1000):
        # As the sandbox draws: from the seed and the number of the call.
        hits = [random.Random(f"{seed}:{call}").random() < 0.5 for call in range(number)]
        if hits == [False] * (number - 1) + [True]:
            fault = {"mode": mode, "reads": True, "ratio": 0.5, "seed": seed}
            return market.sandbox.faults(gateway=fault)
    raise AssertionError("no such seed")
