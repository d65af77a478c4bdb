"""Every change of a purchase, one guarded UPDATE each, with what goes with it.

================  =====================================================================
:func:`reserve`   (nothing) → reserved, with its pieces held and its first key
:func:`resend`    reserved → reserved, the present key about to be sent again
:func:`next_key`  reserved → reserved, under the next key
:func:`confirm`   reserved → confirmed; the pieces leave the store and are granted
:func:`release`   reserved → released or refunded; the pieces are free again
================  =====================================================================

All belong inside the fenced transaction of the operation that made the purchase, or of
the one that compensates it. A purchase that is not in the state a verb names is a bug
there, since only one of the two can hold the resource: :class:`WrongState`.
"""

import uuid
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from inventory import holdings, stock
from purchases.caches import PURCHASE
from purchases.models import Purchase, PurchaseState


class Found(NamedTuple):
    """A purchase, and the database's time when it was read."""

    purchase: Purchase
    at: datetime


class WrongState(Exception):
    """The purchase is not as the caller knew it."""


def find(operation: uuid.UUID) -> Found | None:
    """The purchase that an operation has made."""
    found = Purchase.objects.annotate(at=Now()).filter(operation=operation).first()
    return None if found is None else Found(found, found.at)


def reserve(
    operation: uuid.UUID, owner: int, sku: str, quantity: int, payment_method: str, *, epoch: int
) -> Purchase | None:
    """Hold the pieces at today's price. None: there are not that many."""
    held = stock.reserve(sku, quantity, epoch=epoch)
    if held is None:
        return None
    return Purchase.objects.create(
        id=uuid7(),
        operation=operation,
        owner_id=owner,
        product_id=held.product_id,
        sku=sku,
        quantity=quantity,
        amount=held.price * quantity,
        currency=held.currency,
        payment_method=payment_method,
        state=PurchaseState.RESERVED,
    )


def resend(purchase: Purchase) -> None:
    """Write down that the present key is about to be sent again."""
    _change(purchase, key_sent_at=Now())


def next_key(purchase: Purchase) -> None:
    """Write down the key after the present one, about to be sent."""
    number = purchase.key_number + 1
    _change(purchase, key_number=number, key_made_at=Now(), key_sent_at=Now())
    purchase.key_number = number


def confirm(purchase: Purchase, charge: str, *, epoch: int) -> None:
    """It is paid: the pieces are the owner's."""
    _show(purchase, state=PurchaseState.CONFIRMED, charge=charge)
    stock.confirm(purchase.product_id, purchase.quantity, epoch=epoch)
    holdings.grant(purchase.owner_id, purchase.sku, purchase.quantity, operation=purchase.operation)


def release(purchase: Purchase, *, refunded: bool, epoch: int) -> None:
    """It is not paid, or the money went back: the pieces are free again."""
    state = PurchaseState.REFUNDED if refunded else PurchaseState.RELEASED
    _show(purchase, state=state)
    stock.release(purchase.product_id, purchase.quantity, epoch=epoch)


def _show(purchase: Purchase, **values: Any) -> None:
    """A change that clients can see."""
    PURCHASE.invalidate(owner=purchase.owner_id, id=purchase.pk)
    _change(purchase, version=F("version") + 1, **values)


def _change(purchase: Purchase, **values: Any) -> None:
    changed = Purchase.objects.filter(
        pk=purchase.pk, state=PurchaseState.RESERVED, key_number=purchase.key_number
    ).update(**values)
    if not changed:
        raise WrongState(f"Purchase {purchase.pk} is not reserved with key {purchase.key_number}.")
