"""A purchase from order to end: reserve, charge once, confirm or let go."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from pytest_django import Settings

from inventory.holdings import Holdings, holdings_of
from operations import registry
from operations.claim import Claim
from operations.executor import Outcome
from operations.models import Attempt, DeadLetter, Operation
from operations.verbs import claim
from purchases import gateway, payment
from purchases.models import Purchase
from tests.lab.accepting import accept
from tests.operations.dependencies.places import a_full_bulkhead
from tests.purchases.market import KIND, PRICE, SKU, Market

COUNT_CHANGE = """
INSERT INTO inventory_inventory AS head (owner_id, version, fence) VALUES (%(owner)s, 1, 0)
ON CONFLICT (owner_id) DO UPDATE SET version = head.version + 1
"""
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def error_code(operation: Operation) -> str | None:
    return None if operation.error is None else operation.error["code"]


# --- business answers ----------------------------------------------------------------


@pytest.mark.req("G2", "F2")
def test_a_purchase_is_charged_and_granted_once(market: Market) -> None:
    """G2 F2 B1: and nothing comes of working on it again."""
    operation = market.buy(quantity=3)

    purchase = market.purchase(operation.pk)
    assert operation.state == "done"
    assert operation.result == {"purchase_id": str(purchase.pk), "charge_id": purchase.charge}
    assert (purchase.state, purchase.amount, purchase.currency) == ("confirmed", 750, "eur")
    assert purchase.version == 2
    assert market.ledger() == [(f"{operation.pk}:1", 750, "succeeded")]
    assert market.stock() == (7, 0)
    assert holdings_of(market.customer) == Holdings(None, 1, {SKU: 3})
    assert [market.attempt(operation.pk) for _ in range(3)] == [Outcome.DUPLICATE] * 3
    assert market.agrees()


@pytest.mark.req("G2", "B5")
@pytest.mark.parametrize(
    ("payment_method", "code", "ledger"),
    [
        ("pm_card_chargeDeclined", "payment_declined", ["declined"]),
        ("pm_card_authenticationRequired", "payment_declined", []),
        ("pm_unknown", "payment_rejected", []),
    ],
)
def test_who_cannot_pay_gets_nothing_and_the_pieces_are_free(
    market: Market, payment_method: str, code: str, ledger: list[str]
) -> None:
    """G2 B5: a business answer is final, and is not retried."""
    operation = market.buy(quantity=2, payment_method=payment_method)

    assert (operation.state, error_code(operation), operation.attempts) == ("failed", code, 1)
    assert market.purchase(operation.pk).state == "released"
    assert [status for *_, status in market.ledger()] == ledger
    assert market.stock() == (10, 0)
    assert market.agrees()


@pytest.mark.req("F1", "B5")
def test_what_is_not_there_is_not_charged(market: Market) -> None:
    """F1 B5: and leaves no purchase."""
    operation = market.buy(quantity=11)

    assert (operation.state, error_code(operation)) == ("failed", "out_of_stock")
    assert not Purchase.objects.exists()
    assert market.ledger() == []
    assert market.agrees()


def test_a_product_that_is_gone_is_told_apart(market: Market) -> None:
    """B5."""
    operation = market.buy(sku="sku-gone")

    assert (operation.state, error_code(operation)) == ("failed", "unknown_product")


@pytest.mark.req("F1", "F2")
def test_of_sixty_buyers_ten_get_the_ten_pieces(market: Market) -> None:
    """F1 F2: eight at a time, each attempt on a connection of its own."""
    ids = [market.order() for _ in range(60)]

    def work(index: int) -> str:
        try:
            return market.work(ids[index]).state
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(work, range(60)))

    assert (states.count("done"), states.count("failed")) == (10, 50)
    assert len(market.ledger()) == 10
    assert market.stock() == (0, 0)
    assert market.agrees()


@pytest.mark.req("A9")
@pytest.mark.parametrize(("change", "state"), [("name = name", "done"), ("name = 'N'", "failed")])
def test_a_product_that_changed_before_the_work_is_not_bought(
    market: Market, change: str, state: str
) -> None:
    """A9: what the client saw is checked where the first effect is made."""
    id = accept(KIND, publish=False, user=market.customer, precondition={"versions": [1]}, sku=SKU)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE inventory_product SET {change}")

    operation = market.work(id)

    assert operation.state == state
    assert error_code(operation) == (None if state == "done" else "precondition_failed")
    assert market.agrees()


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("kind", "payload", "change"),
    [
        (KIND, {"sku": SKU}, "UPDATE inventory_product SET name = 'N'"),
        ("inventory.sync", {}, COUNT_CHANGE),
    ],
)
def test_what_a_precondition_has_found_stays_so_until_the_commit(
    market: Market, kind: str, payload: dict[str, str], change: str
) -> None:
    """A9: whoever changes it waits; the look and the effect are one."""
    owner = {"owner": market.customer}
    with connection.cursor() as cursor:
        cursor.execute(COUNT_CHANGE, owner)
    promise = {"versions": [1]}
    id = accept(kind, publish=False, user=market.customer, precondition=promise, **payload)
    row = claim(id, kind, claimed_by="test:1", fifo=False)
    assert row is not None
    other = connection.copy()
    with closing(other), other.cursor() as somebody:
        somebody.execute("SET lock_timeout = '100ms'")
        with Claim(row, registry.get(kind)).fenced(), pytest.raises(OperationalError) as error:
            somebody.execute(change, owner)
        assert isinstance(error.value.__cause__, psycopg.errors.LockNotAvailable)
        somebody.execute(change, owner)
        assert somebody.rowcount == 1


@pytest.mark.req("A9")
def test_a_price_that_changes_after_the_reservation_changes_nothing(market: Market) -> None:
    """A9: neither the amount nor, on the next attempt, the precondition."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})
    id = accept(KIND, publish=False, user=market.customer, precondition={"versions": [1]}, sku=SKU)
    assert market.attempt(id) == Outcome.RETRY
    with connection.cursor() as cursor:
        cursor.execute("UPDATE inventory_product SET price_minor = 9999")

    assert market.work(id).state == "done"
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]


# --- a gateway that fails ------------------------------------------------------------


def test_a_dependency_without_a_place_leaves_no_trace_of_a_purchase(market: Market) -> None:
    """B7: nothing is held, so the next attempt is a first one and can still be cancelled."""
    id = market.order()
    with a_full_bulkhead(payment.PAYMENTS):
        assert market.attempt(id) == Outcome.DEFERRED
    operation = Operation.objects.get(pk=id)
    assert (operation.effects_began, operation.epoch, operation.attempts) == (False, None, 0)
    assert not Purchase.objects.exists()
    assert market.work(id).state == "done"
    assert market.agrees()


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    ("made", "outcome"), [(2 * 60 * MINUTE, Outcome.DONE), (DAY + MINUTE, Outcome.RETRY)]
)
def test_payments_made_long_after_the_key_was_sent_are_not_looked_through(
    market: Market,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    made: timedelta,
    outcome: Outcome,
) -> None:
    """G2: unless the gateway has forgotten the key, for then the list alone decides."""
    id = market.order()
    reachable, settings.STRIPE_API_BASE = settings.STRIPE_API_BASE, "http://127.0.0.1:1"
    assert market.attempt(id) == Outcome.RETRY
    settings.STRIPE_API_BASE = reachable
    market.age(id, made=made, sent=made)
    for n in range(4):
        gateway.charge(f"other:{n}", f"other-{n}", PRICE, "eur", "pm_card_visa")
    monkeypatch.setattr(gateway, "FIND_LIMIT", 3)

    assert market.attempt(id) == outcome
    charged = [key for key, *_ in market.ledger() if key.startswith(str(id))]
    assert charged == ([f"{id}:1"] if outcome == Outcome.DONE else [])


@pytest.mark.req("G2", "I1")
def test_a_charge_that_was_made_after_all_that_is_found_by_its_key(market: Market) -> None:
    """G2 I1: whoever sent it so late; the gateway remembers the key."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})
    id = market.order()
    assert market.attempt(id) == Outcome.RETRY
    market.age(id, made=2 * 60 * MINUTE, sent=2 * 60 * MINUTE)

    assert market.work(id).state == "done"
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_charge_whose_answer_was_lost_is_found_again(market: Market) -> None:
    """G2 I1: never repeated."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})

    operation = market.buy()

    assert (operation.state, operation.attempts) == ("done", 2)
    assert market.ledger() == [(f"{operation.pk}:1", PRICE, "succeeded")]
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_decline_whose_answer_was_lost_is_found_again(market: Market) -> None:
    """G2 I1: one card, refused once."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})

    operation = market.buy(payment_method="pm_card_chargeDeclined")

    assert (operation.state, error_code(operation)) == ("failed", "payment_declined")
    assert [status for *_, status in market.ledger()] == ["declined"]
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_stored_failure_of_the_gateway_uses_its_key_up(market: Market) -> None:
    """G2 I1: the next key is taken, and the first one charges no more."""
    market.sandbox.faults(gateway={"mode": "error", "count": 1})

    operation = market.buy()

    assert operation.state == "done"
    assert market.ledger() == [(f"{operation.pk}:2", PRICE, "succeeded")]
    with pytest.raises(gateway.KeyConsumed):
        gateway.charge(f"{operation.pk}:1", str(operation.pk), PRICE, "eur", "pm_card_visa")
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_key_that_is_used_up_is_not_replaced_when_the_list_shows_a_charge(
    market: Market,
) -> None:
    """G2 I1: the gateway failed after it had charged, or another sender got through."""
    id = market.order()
    market.sandbox.faults(gateway={"mode": "error", "count": 1})
    with pytest.raises(gateway.GatewayUnavailable):
        gateway.charge(f"{id}:1", str(id), PRICE, "eur", "pm_card_visa")
    gateway.charge("another", str(id), PRICE, "eur", "pm_card_visa")

    assert market.work(id).state == "done"
    assert market.purchase(id).key_number == 1
    assert [key for key, *_ in market.ledger()] == ["another"]


@pytest.mark.req("G2", "B6", "C1")
def test_a_gateway_that_stays_away_ends_in_a_dead_letter_that_can_be_replayed(
    market: Market,
) -> None:
    """G2 B6 C1: the pieces stay held meanwhile."""
    market.sandbox.faults(gateway={"mode": "error", "reads": True})

    operation = market.buy(quantity=2)

    assert (operation.state, operation.attempts) == ("dead", 5)
    letter = DeadLetter.objects.get(operation=operation)
    assert (letter.category, letter.dependency) == ("dependency", "payments")
    assert market.stock() == (10, 2)
    market.sandbox.faults()
    market.replay(operation.pk)
    assert market.work(operation.pk).state == "done"
    assert len(market.ledger()) == 1
    assert market.agrees()


@pytest.mark.req("G2")
def test_a_call_that_is_still_being_worked_on_is_waited_for(
    market: Market, settings: Settings
) -> None:
    """G2: uncounted, and under the same key."""
    settings.STRIPE_TIMEOUT = 0.3
    market.sandbox.faults(gateway={"mode": "slow", "delay_s": 1.5, "count": 1})
    id = market.order()

    assert market.attempt(id) == Outcome.RETRY
    assert market.attempt(id) == Outcome.DEFERRED
    settings.STRIPE_TIMEOUT = 10
    while market.attempt(id) == Outcome.DEFERRED:
        pass

    assert Operation.objects.get(pk=id).state == "done"
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]
    assert market.agrees()


def test_a_bank_that_takes_its_time_is_waited_for(market: Market) -> None:
    """G2: uncounted, with the pieces held."""
    id = market.order(payment_method="pm_usBankAccount_processing")

    assert [market.attempt(id), market.attempt(id)] == [Outcome.DEFERRED] * 2

    assert Operation.objects.get(pk=id).deferrals == 2
    assert market.purchase(id).key_number == 1
    assert market.stock() == (10, 1)


# --- keys that the gateway has forgotten ---------------------------------------------


@pytest.mark.req("G2", "I1")
def test_a_charge_under_a_forgotten_key_is_found_in_the_list(market: Market) -> None:
    """G2 I1: whatever its key, it is not made again."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})
    id = market.order()
    assert market.attempt(id) == Outcome.RETRY
    forget_keys(market)
    market.age(id, made=2 * DAY, sent=2 * DAY)

    assert market.work(id).state == "done"
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_forgotten_key_without_a_charge_is_replaced(market: Market) -> None:
    """G2 I1."""
    id = a_failed_attempt(market)
    forget_keys(market)
    market.age(id, made=2 * DAY, sent=MINUTE)

    assert market.work(id).state == "done"
    assert market.ledger() == [(f"{id}:2", PRICE, "succeeded")]
    assert market.agrees()


@pytest.mark.req("G2")
def test_a_key_is_kept_while_an_earlier_sender_may_still_use_it(market: Market) -> None:
    """G2: only when that one is past its time limit (10 s here) there is another key."""
    id = a_failed_attempt(market)
    forget_keys(market)
    market.age(id, made=2 * DAY, sent=timedelta(seconds=2))

    assert market.attempt(id) == Outcome.DEFERRED

    operation = Operation.objects.get(pk=id)
    assert operation.started_at is not None
    assert 5 < (operation.not_before - operation.started_at).total_seconds() < 8.5
    assert market.purchase(id).key_number == 1
    assert market.ledger() == []


@pytest.mark.req("G2")
def test_a_key_that_is_not_old_is_sent_again(market: Market) -> None:
    """G2: a failed connection uses no key up."""
    id = a_failed_attempt(market)
    market.age(id, made=DAY / 2, sent=DAY / 2)

    assert market.work(id).state == "done"
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]


# --- what cannot be, and is for people -----------------------------------------------


@pytest.mark.req("B11")
def test_a_charge_of_another_amount_is_never_accepted(market: Market) -> None:
    """B11: a bug; retried at most twice."""
    market.sandbox.faults(gateway={"mode": "drop_reply", "count": 1})
    id = market.order()
    assert market.attempt(id) == Outcome.RETRY
    Purchase.objects.update(amount=PRICE + 1)

    operation = market.work(id)

    assert operation.state == "dead"
    letter = DeadLetter.objects.get(operation=operation)
    assert (letter.category, letter.error_type) == ("bug", "WrongCharge")
    assert market.purchase(id).state == "reserved"


@pytest.mark.req("B11")
def test_several_charges_are_never_accepted(market: Market) -> None:
    """B11."""
    id = a_failed_attempt(market)
    for key in ("one", "two"):
        gateway.charge(key, str(id), PRICE, "eur", "pm_card_visa")

    assert market.work(id).state == "dead"
    assert len(market.ledger()) == 2


@pytest.mark.req("G2")
def test_a_key_that_belongs_to_another_call_is_not_replaced(market: Market) -> None:
    """G2: burnt, while the claim is held, or sent with other parameters before."""
    id = market.order()
    gateway.burn(f"{id}:1", str(id), PRICE, "eur")

    operation = market.work(id)

    assert operation.state == "dead"
    assert DeadLetter.objects.get(operation=operation).category == "bug"
    assert market.purchase(id).key_number == 1
    assert market.ledger() == []


@pytest.mark.req("G2")
def test_a_charge_made_with_other_parameters_is_found(market: Market) -> None:
    """G2: the card that paid may have another name by now; the list shows the charge."""
    id = market.order(payment_method="pm_card_mastercard")
    gateway.charge(f"{id}:1", str(id), PRICE, "eur", "pm_card_visa")

    assert market.work(id).state == "done"
    assert market.agrees()


@pytest.mark.req("F2")
@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"operation": "other"}, "purchases_one_per_operation"),
        ({"charge": "other"}, "purchases_one_per_charge"),
        ({"charge": ""}, "purchases_confirmed_is_charged"),
        ({"state": "lost"}, "purchases_state_is_known"),
        ({"amount": 0}, "purchases_numbers_are_positive"),
    ],
)
def test_the_database_refuses_what_cannot_be(
    market: Market, change: dict[str, object], constraint: str
) -> None:
    """F2: one purchase and one charge for an operation, whoever writes it."""
    first, second = market.buy(), market.buy()
    values = {
        name: getattr(market.purchase(second.pk), name) if value == "other" else value
        for name, value in change.items()
    }

    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Purchase.objects.filter(operation=first.pk).update(**values)


def test_each_attempt_is_in_the_history(market: Market) -> None:
    """C1."""
    market.sandbox.faults(gateway={"mode": "error", "count": 1})
    operation = market.buy()

    history = Attempt.objects.filter(operation=operation).order_by("epoch")

    assert list(history.values_list("outcome", "dependency")) == [
        ("retry", "payments"),
        ("done", ""),
    ]


def a_failed_attempt(market: Market) -> uuid.UUID:
    """A purchase whose first attempt reached no gateway: reserved, with key 1."""
    id = market.order()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.STRIPE_API_BASE", "http://127.0.0.1:9")
        assert market.attempt(id) == Outcome.RETRY
    assert market.ledger() == []
    return id


def forget_keys(market: Market) -> None:
    market.sandbox.http.post("/gateway/forget", json={}).raise_for_status()
