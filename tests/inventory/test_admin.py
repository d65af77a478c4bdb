"""Products in the admin: an old page must not write old stock back."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from inventory import stock
from inventory.models import Product

# In a transaction of the test, a slow page would meet idle_in_transaction_session_timeout.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin() -> Client:
    user = User.objects.create(username="admin", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def product() -> Product:
    return Product.objects.create(
        sku="sku-a", name="A thing", price_minor=250, currency="eur", available=10
    )


def save(admin: Client, product: Product, **changes: Any) -> Product:
    form = {"name": product.name, "price_minor": 250, "currency": "eur", "restock": "", **changes}
    answer = admin.post(f"/admin/inventory/product/{product.pk}/change/", form)
    assert answer.status_code == 302, answer.content
    return Product.objects.get(pk=product.pk)


def test_a_change_of_the_entry_leaves_the_stock_alone(admin: Client, product: Product) -> None:
    """F1 H6: also when the page was loaded before pieces were reserved."""
    stock.reserve("sku-a", 4, epoch=1)

    saved = save(admin, product, name="Another", available=999, reserved=0, version=9)

    assert (saved.name, saved.version) == ("Another", 2)
    assert (saved.available, saved.reserved) == (10, 4)


@pytest.mark.parametrize(("restock", "available"), [(5, 15), (-6, 4), (-7, 10)])
def test_stock_is_counted_in_and_out(
    admin: Client, product: Product, restock: int, available: int
) -> None:
    """F1 H6: what is reserved stays."""
    stock.reserve("sku-a", 4, epoch=1)

    saved = save(admin, product, restock=restock)

    assert (saved.available, saved.reserved, saved.version) == (available, 4, 1)


@pytest.mark.parametrize(
    "path",
    [
        "inventory/product/",
        "inventory/product/add/",
        "inventory/inventory/",
        "inventory/owneditem/",
        "purchases/purchase/",
    ],
)
def test_the_pages_can_be_opened(admin: Client, product: Product, path: str) -> None:
    """H6."""
    assert admin.get(f"/admin/{path}").status_code == 200


def test_what_operations_write_cannot_be_edited(admin: Client) -> None:
    """H6."""
    for path in ("inventory/owneditem/add/", "purchases/purchase/add/"):
        assert admin.get(f"/admin/{path}").status_code == 403
