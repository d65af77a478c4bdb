"""POST purchases and GET purchases/{id}: what clients see."""

import uuid

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Product
from operations.models import Operation
from purchases import verbs
from purchases.models import Purchase
from tests.inventory.client import Api

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("broker", "cache_server"),
]


@pytest.fixture
def api() -> Api:
    """For a customer, with one product to buy."""
    Product.objects.create(
        sku="sku-a", name="A thing", price_minor=250, currency="eur", available=10
    )
    return Api("demo")


def a_purchase(owner: int) -> Purchase:
    made = verbs.reserve(uuid.uuid4(), owner, "sku-a", 2, "pm_card_visa", epoch=1)
    assert made is not None
    return made


@pytest.mark.req("A1", "A2")
def test_a_purchase_is_accepted_with_its_defaults(api: Api) -> None:
    """A1 A2."""
    answer = api.post("purchases", {"sku": "sku-a"})

    assert answer.status_code == 202
    assert answer["Location"] == f"/api/v1/operations/{answer.json()['id']}"
    operation = Operation.objects.get()
    assert operation.payload == {"sku": "sku-a", "quantity": 1, "payment_method": "pm_card_visa"}
    assert operation.resource == f"purchase:{operation.pk}"


@pytest.mark.req("A4", "A6")
def test_a_default_that_is_spelled_out_is_the_same_purchase(api: Api) -> None:
    """A4 A6."""
    first = api.post("purchases", {"sku": "sku-a"}, Idempotency_Key="k")
    again = api.post(
        "purchases",
        {"payment_method": "pm_card_visa", "quantity": 1, "sku": "sku-a"},
        Idempotency_Key="k",
    )
    other = api.post("purchases", {"sku": "sku-a", "quantity": 2}, Idempotency_Key="k")

    assert again.json()["id"] == first.json()["id"]
    assert other.status_code == 422


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "sku"),
        ({"sku": "sku-b"}, "sku"),
        ({"sku": ""}, "sku"),
        ({"sku": "s" * 65}, "sku"),
        ({"sku": "sku-a", "quantity": 0}, "quantity"),
        ({"sku": "sku-a", "quantity": 101}, "quantity"),
        ({"sku": "sku-a", "quantity": "many"}, "quantity"),
        ({"sku": "sku-a", "payment_method": "pm card"}, "payment_method"),
        ({"sku": "sku-a", "payment_method": "p" * 101}, "payment_method"),
        ({"sku": "sku-a", "payment_method": "pm\ncard"}, "payment_method"),
        ({"sku": "sku-a", "amount": 1}, "amount"),
    ],
)
def test_a_purchase_that_cannot_be_is_refused_with_the_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """A2: nothing is stored, an unknown product included."""
    answer = api.post("purchases", body)

    assert answer.status_code == 400, answer.content
    assert list(answer.json()["errors"]) == [field]
    assert not Operation.objects.exists()


@pytest.mark.req("A10")
def test_a_replay_is_answered_although_the_product_is_gone(api: Api) -> None:
    """A10: and although its version has changed."""
    sent = {"sku": "sku-a"}
    first = api.post("purchases", sent, Idempotency_Key="k", If_Match='"1"')
    Product.objects.update(price_minor=300)
    again = api.post("purchases", sent, Idempotency_Key="k", If_Match='"1"')
    assert again.json()["id"] == first.json()["id"]

    Product.objects.all().delete()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inventory.catalogue.FRESH", 0)
        again = api.post("purchases", sent, Idempotency_Key="k", If_Match='"1"')
        new = api.post("purchases", sent)

    assert again.json()["id"] == first.json()["id"]
    assert new.status_code == 400


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("headers", "expected", "status"),
    [
        ({"If_Match": '"2"'}, None, 202),
        ({}, 2, 202),
        ({"If_Match": '"1"'}, None, 412),
        ({}, 1, 412),
    ],
)
def test_a_product_that_changed_is_not_bought_unseen(
    api: Api, headers: dict[str, str], expected: int | None, status: int
) -> None:
    """A9: at another price than the client has seen."""
    Product.objects.update(price_minor=300)
    body = {"sku": "sku-a"} | ({} if expected is None else {"expected_version": expected})

    answer = api.post("purchases", body, **headers)

    assert answer.status_code == status, answer.content
    if status == 202:
        assert Operation.objects.get().precondition == {"versions": [2]}
    else:
        assert answer["ETag"] == '"2"'


def test_accepting_costs_one_statement_for_a_known_product(api: Api) -> None:
    """A1: after the one of authentication."""
    api.post("purchases", {"sku": "sku-a"})

    with CaptureQueriesContext(connection) as statements:
        api.post("purchases", {"sku": "sku-a"})

    assert len(statements) == 2


# --- one purchase --------------------------------------------------------------------


def test_a_purchase_is_shown_to_its_owner(api: Api) -> None:
    """G2 A8: one statement after authentication."""
    made = a_purchase(api.user)

    with CaptureQueriesContext(connection) as statements:
        answer = api.get(f"purchases/{made.pk}")

    assert len(statements) == 2
    shown = answer.json()
    assert shown.pop("created_at")
    assert shown == {
        "id": str(made.pk),
        "sku": "sku-a",
        "quantity": 2,
        "amount": 500,
        "currency": "eur",
        "state": "reserved",
        "version": 1,
    }
    assert answer["ETag"] == '"1"'
    assert api.get(f"purchases/{made.pk}", If_None_Match='"1"').status_code == 304


def test_the_etag_of_a_purchase_changes_with_its_state(api: Api) -> None:
    """A8."""
    made = a_purchase(api.user)
    verbs.confirm(made, "pi_1", epoch=2)

    answer = api.get(f"purchases/{made.pk}", If_None_Match='"1"')

    assert (answer.status_code, answer["ETag"]) == (200, '"2"')
    assert answer.json()["state"] == "confirmed"


@pytest.mark.parametrize("id", ["1", "x" * 500, "%00", str(uuid.UUID(int=0)), "others"])
def test_a_purchase_that_is_not_yours_is_not_found(api: Api, id: str) -> None:
    """A2: nor one whose id cannot be one."""
    other = User.objects.create(username="other")
    if id == "others":
        id = str(a_purchase(other.pk).pk)

    answer = api.get(f"purchases/{id}")

    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
