"""A kind that shares its queue with an older one."""

from operations import Claim, operation
from tests.lab.scripted.models import Effect
from tests.lab.scripted.operations import Payload, Script

SHARED = "newer.shared"


@operation(SHARED, serializer=Script, queue="scripted.local")
def shared(claim: Claim, payload: Payload) -> Payload:
    Effect.objects.create(operation_id=claim.id, epoch=claim.epoch, label=payload["label"])
    return {}
