"""What a user owns: read as one, changed by snapshots and by grants.

Both changes belong inside the fenced transaction of an operation, and raise the version
of the inventory in the statement that also locks it.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connection

from inventory.models import Inventory, OwnedItem, Source
from inventory.supplier import Snapshot


@dataclass(frozen=True)
class Holdings:
    """A user's inventory at one instant. ``revision`` is empty before the first sync."""

    revision: int | None
    version: int
    items: dict[str, int]


_READ = """
SELECT head.revision, COALESCE(head.version, 0), item.sku, sum(item.quantity)::bigint
FROM (SELECT %(owner)s::bigint AS id) AS owner
LEFT JOIN inventory_inventory AS head ON head.owner_id = owner.id
LEFT JOIN inventory_owneditem AS item ON item.owner_id = owner.id
GROUP BY head.revision, head.version, item.sku
ORDER BY item.sku COLLATE "C"
"""


def holdings_of(owner: int) -> Holdings:
    """Pieces by sku, summed over the supplier's and those bought. One statement, so that
    version and items belong together."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"owner": owner})
        rows = cursor.fetchall()
    revision, version = rows[0][:2]
    items = {sku: quantity for _, _, sku, quantity in rows if sku is not None}
    return Holdings(revision, version, items)


def version_of(owner: int) -> int:
    """The version of a user's inventory; 0 while there is none."""
    found = Inventory.objects.filter(owner=owner).values_list("version", flat=True).first()
    return found or 0


def locked_version_of(owner: int) -> int:
    """As :func:`version_of`, and it stays so until the transaction ends."""
    # There must be a row to lock; one of version 0 tells no more than none.
    Inventory.objects.bulk_create([Inventory(owner_id=owner)], ignore_conflicts=True)
    locked = Inventory.objects.select_for_update().values_list("version", flat=True)
    return locked.get(owner=owner)


_TAKE_REVISION = """
INSERT INTO inventory_inventory AS head (owner_id, revision, version, fence)
VALUES (%(owner)s, %(revision)s, 1, %(epoch)s)
ON CONFLICT (owner_id) DO UPDATE
SET revision = EXCLUDED.revision, fence = EXCLUDED.fence, version = head.version + 1
WHERE (head.revision IS NULL OR head.revision < EXCLUDED.revision)
  AND head.fence < EXCLUDED.fence
"""

_DROP_OTHERS = """
DELETE FROM inventory_owneditem
WHERE owner_id = %(owner)s AND source = 'supplier' AND sku <> ALL(%(skus)s::text[])
"""

_PUT_LINES = """
INSERT INTO inventory_owneditem AS item (owner_id, sku, quantity, source)
SELECT %(owner)s, line.sku, line.quantity, 'supplier'
FROM unnest(%(skus)s::text[], %(quantities)s::bigint[]) AS line (sku, quantity)
ON CONFLICT (owner_id, sku) WHERE source = 'supplier' DO UPDATE
SET quantity = EXCLUDED.quantity WHERE item.quantity <> EXCLUDED.quantity
"""


def apply_snapshot(owner: int, snapshot: Snapshot, *, epoch: int) -> bool:
    """Replace what the supplier told before, if this is newer than what is stored.

    What was bought here stays. A sku that is not sold here is kept all the same: the
    supplier may know more than the shop sells. False: the stored revision is as new or
    newer, or a later epoch was here; nothing has changed then.
    """
    lines = {sku: quantity for sku, quantity in snapshot.items.items() if quantity}
    parameters: dict[str, Any] = {
        "owner": owner,
        "revision": snapshot.revision,
        "epoch": epoch,
        "skus": list(lines),
        "quantities": list(lines.values()),
    }
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_REVISION, parameters)
        if not cursor.rowcount:
            return False
        cursor.execute(_DROP_OTHERS, parameters)
        cursor.execute(_PUT_LINES, parameters)
    return True


_COUNT_CHANGE = """
INSERT INTO inventory_inventory AS head (owner_id, version, fence) VALUES (%(owner)s, 1, 0)
ON CONFLICT (owner_id) DO UPDATE SET version = head.version + 1
"""


def grant(owner: int, sku: str, quantity: int, *, operation: uuid.UUID) -> None:
    """Give a user what was bought.

    :raises IntegrityError: the operation has granted it before
    """
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_CHANGE, {"owner": owner})
    OwnedItem.objects.create(
        owner_id=owner, sku=sku, quantity=quantity, source=Source.PURCHASE, operation=operation
    )
