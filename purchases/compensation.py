"""Undoing a purchase that an operator gives up."""

from datetime import datetime
from typing import Any

from inventory.caches import PRODUCT
from operations import Claim, DependencyError, NotReady
from operations.crashpoints import reach
from purchases import gateway, verbs
from purchases.models import Purchase, PurchaseState
from purchases.payment import DEPENDENCY, PROCESSING_DELAY, gateway_outcomes

#: Refund keys that may turn out to be used up in one attempt.
KEYS_IN_A_ROW = 10


def compensate(claim: Claim, payload: dict[str, Any]) -> None:
    """Give back all money and all pieces. May be entered again at any point.

    A worker that was stopped may still hold the purchase's key in its hand. So the key is
    used up first; only then does "the list shows no charge" mean that there is none.
    """
    found = verbs.find(payload["operation"])
    purchase = None if found is None else found.purchase
    refunded = purchase is not None and give_back(purchase)
    reach("purchase.compensated")
    with claim.fenced():
        if purchase is not None and purchase.state == PurchaseState.RESERVED:
            verbs.release(purchase, refunded=refunded, epoch=claim.epoch)
            PRODUCT.invalidate(sku=purchase.sku)
        claim.finish({"refunded": refunded})


def give_back(purchase: Purchase) -> bool:
    """See that no money of this purchase is kept; whether there was any.

    Raises :class:`DependencyError` and :class:`NotReady`.
    """
    with gateway_outcomes():
        _burn(purchase)
        return _give_back_all(str(purchase.operation), purchase.created_at)


def give_back_of(operation: str, since: datetime) -> bool:
    """As :func:`give_back`, for an operation that has no purchase and so never used a key."""
    with gateway_outcomes():
        return _give_back_all(operation, since)


def _give_back_all(operation: str, since: datetime) -> bool:
    refunded = False
    for charge in gateway.find(operation, since):
        status = charge.status
        if status.startswith("requires_"):
            status = gateway.cancel(charge.id).status
        if status == "processing":
            raise NotReady(PROCESSING_DELAY, f"The bank is still working on {charge.id}.")
        if status == "succeeded":
            _refund(operation, charge.id)
        refunded = refunded or status in {"succeeded", "refunded"}
    return refunded


def _burn(purchase: Purchase) -> None:
    try:
        gateway.burn(
            purchase.charge_key, str(purchase.operation), purchase.amount, purchase.currency
        )
    except gateway.Rejected:
        # No payment can be made of this amount and currency, under this key or another.
        return


def _refund(operation: str, payment: str) -> None:
    # The number needs no memory: whatever the key, more than the charge cannot go back.
    for number in range(1, KEYS_IN_A_ROW + 1):
        try:
            refund = gateway.refund(f"{operation}:refund:{number}", payment)
        except (gateway.KeyConsumed, gateway.KeyMismatch):
            continue
        if refund.status in {"succeeded", "pending"}:
            return
        if not refund.replayed:
            raise DependencyError(DEPENDENCY, f"Refund {refund.id} is {refund.status}.")
    raise DependencyError(DEPENDENCY, f"Cannot refund under {KEYS_IN_A_ROW} keys in a row.")
