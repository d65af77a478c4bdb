"""The kind of operation that mends what reconciliation found: money and pieces go back.

It works on the purchase's own resource, so neither the purchase nor its compensation runs
meanwhile, and it looks again before it does anything.
"""

import uuid
from datetime import datetime
from typing import Any

from rest_framework import serializers

from inventory.caches import PRODUCT
from operations import Claim, operation
from operations.intake import submit
from operations.models import OPEN, Operation, State
from operations.system import system_user
from operations.verbs import Accepted
from purchases import verbs
from purchases.compensation import give_back, give_back_of
from purchases.models import PurchaseState
from purchases.payment import DEPENDENCY

KIND = "purchases.repair"


class RepairInput(serializers.Serializer[Any]):
    operation = serializers.UUIDField(help_text="The purchase's operation.")
    since = serializers.DateTimeField(help_text="Not after its first call to the gateway.")
    #: So that each charge that turns up is a repair of its own.
    charge = serializers.CharField(max_length=255, allow_blank=True, default="")


def begin(id: uuid.UUID, since: datetime, charge: str, key: str) -> Accepted:
    """Accept the repair of an operation's charge, or with none, of the pieces it holds.

    :raises NotAccepting: nothing is taken in now
    """
    data = {"operation": str(id), "since": since.isoformat(), "charge": charge}
    return submit(KIND, owner=system_user(), key=key, data=data)


@operation(
    KIND,
    serializer=RepairInput,
    resource="purchase:{operation}",
    queue="purchases.purchase",
    atomic=False,
    critical=True,
    dependencies=(DEPENDENCY,),
)
def repair(claim: Claim, payload: dict[str, Any]) -> None:
    """Give back what a purchase that came to nothing has taken. May be entered again."""
    found = verbs.find(payload["operation"])
    purchase = None if found is None else found.purchase
    state = Operation.objects.filter(pk=payload["operation"]).values_list("state", flat=True)
    if set(state) & {*OPEN, State.DEAD} or (
        purchase is not None and purchase.state == PurchaseState.CONFIRMED
    ):
        with claim.fenced():
            claim.finish({"refunded": False, "released": False})
        return
    if purchase is None:
        refunded = give_back_of(str(payload["operation"]), payload["since"])
    else:
        refunded = give_back(purchase)
    held = purchase is not None and purchase.state == PurchaseState.RESERVED
    with claim.fenced():
        if purchase is not None and held:
            verbs.release(purchase, refunded=refunded, epoch=claim.epoch)
            PRODUCT.invalidate(sku=purchase.sku)
        claim.finish({"refunded": refunded, "released": held})
