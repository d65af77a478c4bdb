"""The memory of known products."""

import pytest
from pytest_django import DjangoAssertNumQueries

from inventory.catalogue import Catalogue
from inventory.models import Product

pytestmark = pytest.mark.django_db


def a_product(sku: str) -> Product:
    return Product.objects.create(sku=sku, name="A thing", price_minor=250, currency="eur")


def test_a_product_that_was_seen_costs_no_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """A1."""
    catalogue = Catalogue()
    a_product("sku-a")

    with django_assert_num_queries(1):
        assert catalogue.knows("sku-a")
    with django_assert_num_queries(0):
        assert catalogue.knows("sku-a")


def test_a_product_is_known_as_soon_as_it_is_there() -> None:
    """A1: that it was missing is not remembered."""
    catalogue = Catalogue()

    assert not catalogue.knows("sku-a")
    a_product("sku-a")
    assert catalogue.knows("sku-a")


def test_a_product_that_is_gone_is_forgotten_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A1."""
    catalogue = Catalogue()
    product = a_product("sku-a")
    assert catalogue.knows("sku-a")
    product.delete()
    assert catalogue.knows("sku-a")

    monkeypatch.setattr("inventory.catalogue.FRESH", 0)

    assert not catalogue.knows("sku-a")


def test_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """A1."""
    monkeypatch.setattr("inventory.catalogue.CAPACITY", 2)
    catalogue = Catalogue()
    for sku in ("sku-a", "sku-b", "sku-c"):
        a_product(sku)
        assert catalogue.knows(sku)

    with django_assert_num_queries(1):
        assert catalogue.knows("sku-c")
        assert catalogue.knows("sku-b")
        assert catalogue.knows("sku-a")
