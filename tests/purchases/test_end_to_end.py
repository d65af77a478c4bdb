"""From the request of a client on a bad network to the charge, and back."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import Sum

from operations import tokens
from operations.models import IdempotencyRecord, Operation
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.waiting import wait_until
from tests.purchases.market import PRICE, SKU, Market, StackSandbox


@pytest.mark.req("A1", "A2", "A3", "A4", "A7", "F2", "G1", "G2")
def test_one_purchase_one_effect(stack: Stack) -> None:
    """A1 A2 A3 A4 A7 F2 G1 G2: sent many times to two APIs, with a worker that dies."""
    crash = Crash(stack)
    stack.start(apis=2, workers=0)
    stack.add_worker(concurrency=3)
    sandbox = StackSandbox(stack)
    market = Market.opened(sandbox)
    user = User.objects.get(pk=market.customer)
    token = tokens.issue(user, "test", timedelta(hours=1))
    headers = {"Authorization": f"Bearer {token}"}

    def post(index: int) -> httpx.Response:
        url = stack.api_urls[index % 2]
        sent = {**headers, "Idempotency-Key": "order-1"}
        body = {"sku": SKU, "quantity": 2}
        return httpx.post(f"{url}/api/v1/purchases", json=body, headers=sent, timeout=20)

    def get(path: str) -> httpx.Response:
        return httpx.get(f"{stack.api_url}{path}", headers=headers, timeout=20)

    crash.arm("purchase.charged")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(post, range(10)))

    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    where = answers[0].headers["Location"]
    crash.wait("purchase.charged")
    operation = end_of(get, where)
    assert operation["state"] == "done"

    purchase = get(f"/api/v1/purchases/{operation['result']['purchase_id']}")
    assert purchase.json()["state"] == "confirmed"
    assert purchase.json()["amount"] == 2 * PRICE
    inventory = get("/api/v1/inventory")
    assert inventory.json()["items"] == [{"sku": SKU, "quantity": 2}]
    product = get(f"/api/v1/products/{SKU}")
    assert product.json()["available"] == 8
    again = post(0)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json()["result"] == operation["result"]
    assert "Retry-After" not in again.headers
    assert Operation.objects.count() == 1
    assert IdempotencyRecord.objects.aggregate(sum=Sum("replays"))["sum"] == 10
    assert market.ledger() == [(f"{operation['id']}:1", 2 * PRICE, "succeeded")]
    assert market.agrees()

    sync = httpx.post(
        f"{stack.api_url}/api/v1/inventory/sync",
        headers={
            **headers,
            "Idempotency-Key": secrets.token_hex(8),
            "If-Match": inventory.headers["ETag"],
        },
        timeout=20,
    )
    assert sync.status_code == 202, sync.text
    assert end_of(get, sync.headers["Location"])["state"] == "done"
    items = {item["sku"]: item["quantity"] for item in get("/api/v1/inventory").json()["items"]}
    assert items == {SKU: 2, "sku-1": 1, "sku-scarce": 1}
    sandbox.http.close()


def end_of(get: Callable[[str], httpx.Response], where: str) -> dict[str, Any]:
    """The operation, once there is no need to ask again."""

    def ended() -> dict[str, Any]:
        answer = get(where)
        assert answer.status_code == 200
        return {} if "Retry-After" in answer.headers else dict(answer.json())

    return wait_until(ended, timeout=40, message="it does not end")
