"""The kind of operation that buys something: reserve, charge, confirm."""

import time
from datetime import timedelta
from typing import Any

from django.conf import settings
from rest_framework import serializers

from inventory.caches import INVENTORY, PRODUCT
from inventory.models import Product
from operations import Claim, Refused, operation
from operations.crashpoints import reach
from operations.fields import IntegerField
from purchases import payment, verbs
from purchases.compensation import compensate
from purchases.models import Purchase
from purchases.recheck import recheck
from purchases.repair import repair

Payload = dict[str, Any]

__all__ = ["purchase", "recheck", "repair"]


class PurchaseInput(serializers.Serializer[Any]):
    sku = serializers.CharField(max_length=64)
    quantity = IntegerField(min_value=1, max_value=100, default=1)
    payment_method = serializers.RegexField(
        r"^[A-Za-z0-9_]+\Z",
        max_length=100,
        default="pm_card_visa",
        help_text="A payment method of the gateway. The default is one of its test cards.",
    )


def _is_as_promised(claim: Claim) -> bool:
    """Is the product still at a version that the client had seen? It stays locked."""
    assert claim.precondition is not None
    versions = Product.objects.select_for_update(no_key=True).values_list("version", flat=True)
    return versions.filter(sku=claim.row.payload["sku"]).first() in claim.precondition["versions"]


@operation(
    "purchases.purchase",
    serializer=PurchaseInput,
    resource="purchase:{id}",
    atomic=False,
    dependencies=(payment.DEPENDENCY,),
    critical=True,
    key_retention=timedelta(seconds=settings.SEKALI_PURCHASE_KEY_RETENTION),
    precondition=_is_as_promised,
    invalidates=(PRODUCT.on(sku="{sku}"), INVENTORY.on(owner="{owner}")),
    compensate=compensate,
)
def purchase(claim: Claim, payload: Payload) -> None:
    """Hold the pieces, charge once, and give the pieces or let them go.

    Each fenced transaction leaves a state from which the next attempt goes on.
    """
    began = time.monotonic()
    found = verbs.find(claim.id) if claim.effects_began else None
    bought = _reserve(claim, payload) if found is None else found.purchase
    reach("purchase.reserved")
    try:
        if found is None:
            charge = payment.pay(claim, bought, began)
        else:
            charge = payment.pay_again(claim, found)
    except payment.NotPaid as answer:
        reach("purchase.charged")
        with claim.fenced():
            verbs.release(bought, refunded=answer.code == payment.REFUNDED, epoch=claim.epoch)
            claim.refuse(answer.code, answer.detail)
        return
    reach("purchase.charged")
    with claim.fenced():
        verbs.confirm(bought, charge.id, epoch=claim.epoch)
        claim.finish({"purchase_id": str(bought.pk), "charge_id": charge.id})


def _reserve(claim: Claim, payload: Payload) -> Purchase:
    assert claim.owner_id is not None, "A purchase is always of a user."
    with claim.fenced():
        bought = verbs.reserve(
            claim.id,
            claim.owner_id,
            payload["sku"],
            payload["quantity"],
            payload["payment_method"],
            epoch=claim.epoch,
        )
        if bought is None:
            raise _why_not(payload)
    return bought


def _why_not(payload: Payload) -> Refused:
    if Product.objects.filter(sku=payload["sku"]).exists():
        return Refused("out_of_stock", f"There are not {payload['quantity']} pieces left.")
    return Refused("unknown_product", "There is no such product.")
