"""Every change of a product's stock, one conditional UPDATE each.

=================  ====================================================================
:func:`reserve`    hold pieces, if that many are neither held nor sold
:func:`release`    let go of pieces held
:func:`confirm`    pieces held leave the store
:func:`restock`    pieces come into the store, or, below zero, are taken out
=================  ====================================================================

Nothing reads a number, computes and writes it back; the CHECK constraints of ``Product``
refuse whatever would get past these. The first three belong inside the fenced transaction
of the operation whose epoch they are given. Buyers of one product hold different
resources, and their epochs come in any order: so the product keeps the highest one it has
seen, for people who look, and what turns an outdated claim away is its own fence.
"""

from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True)
class Reserved:
    """What was held, as the catalogue had it at that instant; ``price`` in minor units."""

    product_id: int
    price: int
    currency: str


class StockMismatch(Exception):
    """Fewer pieces are held than were to be let go: a bug, never a business answer."""


_RESERVE = """
UPDATE inventory_product
SET reserved = reserved + %(quantity)s, fence = GREATEST(fence, %(epoch)s)
WHERE sku = %(sku)s AND available - reserved >= %(quantity)s
RETURNING id, price_minor, currency
"""


def reserve(sku: str, quantity: int, *, epoch: int) -> Reserved | None:
    """Hold ``quantity`` pieces, or none: there are not that many, or no such product."""
    with connection.cursor() as cursor:
        cursor.execute(_RESERVE, {"sku": sku, "quantity": quantity, "epoch": epoch})
        row = cursor.fetchone()
    return None if row is None else Reserved(*row)


_RELEASE = """
UPDATE inventory_product
SET reserved = reserved - %(quantity)s, fence = GREATEST(fence, %(epoch)s)
WHERE id = %(product)s AND reserved >= %(quantity)s
"""


def release(product_id: int, quantity: int, *, epoch: int) -> None:
    """Let go of ``quantity`` pieces held. Raises :class:`StockMismatch`."""
    _change(_RELEASE, product_id, quantity, epoch)


_CONFIRM = """
UPDATE inventory_product
SET reserved = reserved - %(quantity)s, available = available - %(quantity)s,
    fence = GREATEST(fence, %(epoch)s)
WHERE id = %(product)s AND reserved >= %(quantity)s
"""


def confirm(product_id: int, quantity: int, *, epoch: int) -> None:
    """``quantity`` pieces held are sold. Raises :class:`StockMismatch`."""
    _change(_CONFIRM, product_id, quantity, epoch)


_RESTOCK = """
UPDATE inventory_product SET available = available + %(quantity)s
WHERE id = %(product)s AND available + %(quantity)s >= reserved
"""


def restock(product_id: int, quantity: int) -> bool:
    """Count pieces in or, below zero, out. False: those pieces are held or not there."""
    with connection.cursor() as cursor:
        cursor.execute(_RESTOCK, {"product": product_id, "quantity": quantity})
        return bool(cursor.rowcount)


def _change(sql: str, product_id: int, quantity: int, epoch: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"product": product_id, "quantity": quantity, "epoch": epoch})
        if cursor.rowcount != 1:
            raise StockMismatch(f"Product {product_id} does not hold {quantity} pieces.")
