"""GET inventory, GET products, POST inventory/sync: what clients see."""

import uuid

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from inventory import stock
from inventory.holdings import apply_snapshot, grant
from inventory.models import Product
from inventory.supplier import Snapshot
from operations.models import Operation
from tests.inventory.client import Api

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("broker", "cache_server"),
]


@pytest.fixture
def api() -> Api:
    return Api("demo")


def products(*skus: str) -> None:
    for sku in skus:
        Product.objects.create(
            sku=sku, name=f"Thing {sku}", price_minor=250, currency="eur", available=10
        )


# --- inventory -----------------------------------------------------------------------


@pytest.mark.req("G1")
def test_an_inventory_is_shown_with_its_versions(api: Api) -> None:
    """G1: quantities are summed by sku."""
    apply_snapshot(api.user, Snapshot(7, {"b": 1, "a": 2}), epoch=1)
    grant(api.user, "a", 3, operation=uuid.uuid4())

    answer = api.get("inventory")

    assert answer.status_code == 200
    assert answer.json() == {
        "revision": 7,
        "version": 2,
        "items": [{"sku": "a", "quantity": 5}, {"sku": "b", "quantity": 1}],
    }
    assert answer["ETag"] == '"2"'
    assert answer["Cache-Control"] == "private, no-cache"


def test_who_has_nothing_sees_an_empty_inventory(api: Api) -> None:
    """G1: of version 0, and nothing of others."""
    apply_snapshot(Api("other").user, Snapshot(7, {"a": 2}), epoch=1)

    answer = api.get("inventory")

    assert answer.json() == {"revision": None, "version": 0, "items": []}
    assert answer["ETag"] == '"0"'


@pytest.mark.req("A8")
def test_an_inventory_that_is_unchanged_is_not_sent_again(api: Api) -> None:
    """A8: one statement after authentication, whether it is or not."""
    apply_snapshot(api.user, Snapshot(7, {"a": 2}), epoch=1)
    etag = api.get("inventory")["ETag"]

    with CaptureQueriesContext(connection) as statements:
        answer = api.get("inventory", If_None_Match=etag)
    assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", etag)
    assert len(statements) == 2

    apply_snapshot(api.user, Snapshot(8, {"a": 2}), epoch=2)
    assert api.get("inventory", If_None_Match=etag).status_code == 200


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        ('"1"', {}, 202),
        ("*", {}, 202),
        ('"0", "1"', {}, 202),
        (None, {"expected_version": 1}, 202),
        ('"0"', {}, 412),
        ('W/"1"', {}, 412),
        (None, {"expected_version": 2}, 412),
        ('"1"', {"expected_version": 2}, 412),
    ],
)
def test_a_sync_of_an_inventory_that_changed_is_refused(
    api: Api, header: str | None, body: dict[str, int], status: int
) -> None:
    """A9: from a page that is out of date; nothing is stored."""
    apply_snapshot(api.user, Snapshot(7, {"a": 2}), epoch=1)

    answer = api.post("inventory/sync", body, **({"If_Match": header} if header else {}))

    assert answer.status_code == status, answer.content
    assert Operation.objects.count() == (1 if status == 202 else 0)


@pytest.mark.req("A9", "A10")
def test_a_replay_of_a_sync_is_answered_although_the_inventory_changed(api: Api) -> None:
    """A9 A10."""
    first = api.post("inventory/sync", Idempotency_Key="k", If_Match='"0"')
    apply_snapshot(api.user, Snapshot(7, {"a": 2}), epoch=1)

    again = api.post("inventory/sync", Idempotency_Key="k", If_Match='"0"')

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]
    assert again["Idempotent-Replayed"] == "true"


@pytest.mark.req("B10")
def test_syncs_of_one_user_share_a_resource(api: Api) -> None:
    """B10: so no two run at once."""
    api.post("inventory/sync")
    api.post("inventory/sync", {})

    resources = set(Operation.objects.values_list("kind", "resource"))

    assert resources == {("inventory.sync", f"inventory:user:{api.user}")}


# --- products ------------------------------------------------------------------------


def test_a_product_is_shown_with_what_can_be_bought(api: Api) -> None:
    """G2: available are the pieces that are not held."""
    products("sku-a")
    stock.reserve("sku-a", 3, epoch=1)

    answer = api.get("products/sku-a")

    assert answer.json() == {
        "sku": "sku-a",
        "name": "Thing sku-a",
        "price": 250,
        "currency": "eur",
        "version": 1,
        "available": 7,
    }
    assert answer["ETag"] == '"1"'


@pytest.mark.req("A9")
def test_the_etag_of_a_product_covers_the_catalogue_entry_only(api: Api) -> None:
    """A9."""
    products("sku-a")
    stock.reserve("sku-a", 3, epoch=1)
    assert api.get("products/sku-a", If_None_Match='"1"').status_code == 304

    Product.objects.update(price_minor=300)

    answer = api.get("products/sku-a", If_None_Match='"1"')
    assert (answer.status_code, answer["ETag"], answer.json()["price"]) == (200, '"2"', 300)


@pytest.mark.parametrize("sku", ["sku-b", "%00", "%E2%80%AE", "a" * 500])
def test_a_product_that_is_not_there_is_not_found(api: Api, sku: str) -> None:
    """A8: whatever the name."""
    products("sku-a")

    answer = api.get(f"products/{sku}")

    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"


def test_products_are_listed_in_pages(api: Api) -> None:
    """G2: by sku, forward and back."""
    products("c", "a", "b", "e", "d")

    pages, path = [], "products?page_size=2"
    while path:
        page = api.get(path).json()
        pages.append([product["sku"] for product in page["results"]])
        last, path = page, (page["next"] or "").partition("/api/v1/")[2]

    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    back = api.get(last["previous"].partition("/api/v1/")[2]).json()
    assert [product["sku"] for product in back["results"]] == ["c", "d"]


@pytest.mark.parametrize(
    "query", ["cursor=x", "cursor=cD0lMDA=", "cursor=bz05", "page_size=0", "page_size=1000"]
)
def test_a_page_that_cannot_be_is_refused(api: Api, query: str) -> None:
    """A8: p=%00 and o=9 among them."""
    assert api.get(f"products?{query}").status_code == 400


@pytest.mark.parametrize("path", ["inventory", "products", "products/sku-a"])
def test_without_a_token_nothing_is_shown(path: str) -> None:
    """A2."""
    answer = Client().get(f"/api/v1/{path}")

    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
