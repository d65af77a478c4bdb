"""A purchase and what it changes in the cache."""

from datetime import timedelta
from functools import partial
from typing import Any

import httpx
from django.contrib.auth.models import User

from inventory.caches import INVENTORY, PRODUCT
from operations import tokens
from operations.registry import COMPENSATION_SUFFIX
from purchases.caches import PURCHASE
from tests.lab.processes import Stack
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.purchases.market import KIND, SKU, Market, StackSandbox


def seen(market: Market, id: Any = None) -> tuple[Any, ...]:
    """What the cache tells of the product's pieces, the customer's items and the purchase."""
    product, inventory = PRODUCT.get(sku=SKU), INVENTORY.get(owner=market.customer)
    assert product is not None
    assert inventory is not None
    state = None
    if id is not None:
        profile = PURCHASE.get(owner=market.customer, id=market.purchase(id).pk)
        assert profile is not None
        state = profile["state"]
    return product["available"], len(inventory["items"]), state


def test_each_step_of_a_purchase_is_seen_at_once(
    market: Market, cache_server: ValkeyServer
) -> None:
    """E2 G2: held, then confirmed; also when the gateway fails in between."""
    assert seen(market) == (10, 0, None)
    market.sandbox.faults(gateway={"mode": "error", "count": 1})
    id = market.order(quantity=3)
    market.attempt(id)
    assert seen(market, id) == (7, 0, "reserved")
    market.work(id)
    assert seen(market, id) == (7, 1, "confirmed")


def test_a_declined_purchase_is_seen_at_once(market: Market, cache_server: ValkeyServer) -> None:
    """E2 G2"""
    assert seen(market) == (10, 0, None)
    id = market.order(quantity=3, payment_method="pm_card_chargeDeclined")
    market.work(id)
    assert seen(market, id) == (10, 0, "released")


def test_a_purchase_given_up_is_seen_at_once(market: Market, cache_server: ValkeyServer) -> None:
    """E2 G2: by its compensation."""
    market.sandbox.faults(gateway={"mode": "error"})
    id = market.order(quantity=3)
    market.work(id)
    assert seen(market, id) == (7, 0, "reserved")
    market.sandbox.faults()
    compensation = market.discard(id)
    market.work(compensation, KIND + COMPENSATION_SUFFIX)
    assert seen(market, id) == (10, 0, "released")


def test_nobody_is_shown_anothers_purchase(market: Market, cache_server: ValkeyServer) -> None:
    """E6: the owner is in the key."""
    operation = market.buy()
    id = market.purchase(operation.pk).pk
    other = User.objects.create(username="other").pk
    assert PURCHASE.get(owner=market.customer, id=id) is not None
    assert PURCHASE.get(owner=other, id=id) is None


def test_the_form_of_what_is_cached_belongs_to_its_revision(
    market: Market, cache_server: ValkeyServer
) -> None:
    """E6: who changes it raises the ``revision`` of the entry, too."""
    id = market.purchase(market.buy().pk).pk
    profile = PURCHASE.get(owner=market.customer, id=id)
    assert profile is not None
    assert (PURCHASE.keys.prefix, sorted(profile)) == (
        "purchase@1",
        ["amount", "created_at", "currency", "id", "quantity", "sku", "state", "version"],
    )


def test_what_a_client_reads_after_done_is_the_new_state(stack: Stack) -> None:
    """E2 G2: over HTTP, with everything cached before. Between `done` and the delete that
    follows the commit lies an instant, so the answer is waited for, but not for long."""
    stack.start()
    market = Market.opened(StackSandbox(stack))
    token = tokens.issue(User.objects.get(pk=market.customer), "test", timedelta(hours=1))
    with httpx.Client(
        base_url=f"{stack.api_url}/api/v1/",
        headers={"Authorization": f"Bearer {token}"},
        timeout=20,
        trust_env=False,
    ) as client:

        def told() -> tuple[int, int, int]:
            product = client.get(f"products/{SKU}").json()["available"]
            listed = client.get("products").json()["results"][0]["available"]
            items = client.get("inventory").json()["items"]
            return product, listed, items[0]["quantity"] if items else 0

        def bought(key: str) -> Any:
            """The purchase, once it is done."""
            made = client.post("purchases", json={"sku": SKU}, headers={"Idempotency-Key": key})
            operation = client.get(f"operations/{made.json()['id']}").json()
            return operation["result"]["purchase_id"] if operation["state"] == "done" else None

        for number in range(1, 4):
            assert told() == (11 - number, 11 - number, number - 1)
            purchase = wait_until(partial(bought, f"key-{number}"), timeout=15)
            expected = (10 - number, 10 - number, number)
            wait_until(lambda: told() == expected, timeout=1)  # noqa: B023  (asked at once)
            assert client.get(f"purchases/{purchase}").json()["state"] == "confirmed"
