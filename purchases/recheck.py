"""The kind of operation that looks at a drift again, when an operator replays its letter."""

from typing import Any

from rest_framework import serializers

from operations import Claim, NotReady, drift, operation
from operations.intake import NotAccepting
from purchases import reconciliation
from purchases.payment import DEPENDENCY

KIND = "purchases.recheck"
#: Seconds after which to see whether a repair has ended.
REPAIR_DELAY = 2.0


class RecheckInput(serializers.Serializer[Any]):
    drift = serializers.CharField(max_length=200)
    subject = serializers.CharField(max_length=400)


@operation(
    KIND,
    serializer=RecheckInput,
    resource="purchases:drift:{subject}",
    queue="purchases.purchase",
    atomic=False,
    critical=True,
    dependencies=(DEPENDENCY,),
)
def recheck(claim: Claim, payload: dict[str, Any]) -> None:
    """Repair or report what is still there. May be entered again."""
    if payload["drift"] == reconciliation.IN_VAIN:
        try:
            counted = reconciliation.repair_again(payload["subject"], str(claim.id))
        except NotAccepting as error:
            raise NotReady(error.wait, "Repairs are not taken in now.") from error
        if counted is None:
            raise NotReady(REPAIR_DELAY, "The repair is under way.")
    else:
        counted = reconciliation.look_again(payload["drift"], payload["subject"])
    with claim.fenced():
        claim.finish(counted)


drift.looked_at_again_by(reconciliation.KIND, KIND)
