"""What of purchases is cached, and from where it is loaded."""

import uuid
from typing import Any

from locks.cache import CacheEntry
from operations.database import persistently
from purchases.models import Purchase
from purchases.representation import PurchaseRepresentation


def _load_purchase(owner: int, id: uuid.UUID) -> dict[str, Any] | None:
    purchase = persistently(Purchase.objects.filter(pk=id, owner_id=owner).first)
    return None if purchase is None else dict(PurchaseRepresentation(purchase).data)


#: The owner is in the key, so that nobody is shown another's purchase.
PURCHASE: CacheEntry[dict[str, Any]] = CacheEntry(
    "purchase",
    key="{owner}:{id}",
    load=_load_purchase,
    ttl=60,
    tolerates=60,
    source="the row in purchases_purchase",
    invalidated_by=("each change of its state",),
)
