"""Stock: one conditional UPDATE each, and the CHECK constraints behind them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from inventory import stock
from inventory.models import Product


def a_product(available: int = 10, sku: str = "sku-a") -> Product:
    return Product.objects.create(
        sku=sku, name="A thing", price_minor=250, currency="eur", available=available
    )


def pieces(product: Product) -> tuple[int, int]:
    product.refresh_from_db()
    return product.available, product.reserved


@pytest.mark.django_db
@pytest.mark.req("F1")
def test_what_is_reserved_is_held_until_it_is_confirmed_or_released() -> None:
    """F1."""
    product = a_product()

    held = stock.reserve("sku-a", 4, epoch=7)

    assert held == stock.Reserved(product.pk, 250, "eur")
    assert pieces(product) == (10, 4)
    stock.confirm(product.pk, 3, epoch=6)
    assert pieces(product) == (7, 1)
    stock.release(product.pk, 1, epoch=5)
    assert pieces(product) == (7, 0)
    assert product.fence == 7
    assert product.version == 1, "stock is no part of the catalogue entry"


@pytest.mark.django_db
@pytest.mark.req("F1")
def test_what_is_held_cannot_be_reserved_again() -> None:
    """F1."""
    product = a_product(available=5)

    assert stock.reserve("sku-a", 3, epoch=1)
    assert stock.reserve("sku-a", 3, epoch=2) is None
    assert stock.reserve("sku-b", 1, epoch=3) is None
    assert pieces(product) == (5, 3)


@pytest.mark.django_db
@pytest.mark.req("F1")
def test_more_than_is_held_cannot_be_let_go() -> None:
    """F1."""
    product = a_product()
    stock.reserve("sku-a", 2, epoch=1)

    for let_go in (stock.release, stock.confirm):
        with pytest.raises(stock.StockMismatch):
            let_go(product.pk, 3, epoch=1)

    assert pieces(product) == (10, 2)


@pytest.mark.django_db
@pytest.mark.req("F1")
def test_pieces_that_are_held_cannot_be_counted_out() -> None:
    """F1."""
    product = a_product()
    stock.reserve("sku-a", 8, epoch=1)

    assert stock.restock(product.pk, 5)
    assert not stock.restock(product.pk, -8)
    assert stock.restock(product.pk, -7)
    assert pieces(product) == (8, 8)


@pytest.mark.django_db
@pytest.mark.req("F1")
@pytest.mark.parametrize(
    "change",
    [
        "reserved = reserved + 11",
        "reserved = -1",
        "available = -1",
        "price_minor = 0",
        "currency = 'EUR'",
        "sku = ''",
    ],
)
def test_the_database_refuses_what_cannot_be(change: str) -> None:
    """F1: whoever writes it, past every function."""
    a_product()

    with (
        pytest.raises(IntegrityError, match="inventory_"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE inventory_product SET {change}")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "version"),
    [
        ("name = 'Another'", 2),
        ("price_minor = 300", 2),
        ("currency = 'usd', name = 'Another'", 2),
        ("name = name, price_minor = 250", 1),
        ("available = available + 1", 1),
    ],
)
def test_the_version_grows_with_the_catalogue_entry_only(change: str, version: int) -> None:
    """A9: plain SQL counts as the admin does."""
    product = a_product()

    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE inventory_product SET {change}")

    product.refresh_from_db()
    assert product.version == version


@pytest.mark.usefixtures("database")
@pytest.mark.req("F1")
def test_of_sixty_buyers_at_once_ten_get_the_ten_pieces() -> None:
    """F1: each on a connection of its own."""
    product = a_product(available=10)

    assert sum(race(60, lambda: stock.reserve("sku-a", 1, epoch=1) is not None)) == 10
    assert pieces(product) == (10, 10)
    assert sum(race(20, lambda: confirms(product))) == 10
    assert pieces(product) == (0, 0)


@pytest.mark.usefixtures("database")
@pytest.mark.req("I2")
def test_without_the_condition_the_constraint_is_the_last_fence() -> None:
    """F1 I2: read, compute, write back, as it must not be done."""
    product = a_product(available=10)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE inventory_product DROP CONSTRAINT inventory_stock_is_there")
    reading = threading.Barrier(20)

    def buy_carelessly() -> bool:
        seen = Product.objects.get(pk=product.pk)
        reading.wait(timeout=20)
        if seen.available - seen.reserved < 1:
            return False
        Product.objects.filter(pk=product.pk).update(reserved=seen.reserved + 1)
        return True

    assert sum(race(20, buy_carelessly)) == 20
    assert pieces(product) == (10, 1), "nineteen updates are lost: the control can fail"


def confirms(product: Product) -> bool:
    try:
        stock.confirm(product.pk, 1, epoch=1)
    except stock.StockMismatch:
        return False
    return True


def race(count: int, act: Callable[[], bool]) -> list[bool]:
    """Let this many threads act at the same moment, each on its own connection."""
    start = threading.Barrier(count)

    def run(_: int) -> bool:
        try:
            connection.ensure_connection()
            start.wait(timeout=30)
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
