"""The kind of operation that brings a user's inventory up to date."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from rest_framework import serializers

from inventory import supplier
from inventory.caches import INVENTORY
from inventory.holdings import apply_snapshot, locked_version_of
from operations import Claim, DependencyError, Refused, operation
from operations.crashpoints import reach
from operations.dependencies import Dependency

Payload = dict[str, Any]

SUPPLIER = Dependency(
    "supplier",
    connect_timeout=supplier.CONNECT_TIMEOUT,
    total_timeout=max(supplier.CONNECT_TIMEOUT, settings.SUPPLIER_TIMEOUT),
    answers=(supplier.SupplierRefused,),
)


class SyncInput(serializers.Serializer[Any]):
    """Nothing to say: whose inventory it is, the token says."""


def _is_as_promised(claim: Claim) -> bool:
    """Is the inventory still at a version that the client had seen?"""
    assert claim.precondition is not None
    return locked_version_of(_owner_of(claim)) in claim.precondition["versions"]


@operation(
    "inventory.sync",
    serializer=SyncInput,
    resource="inventory:user:{owner}",
    atomic=False,
    dependencies=(SUPPLIER.name,),
    precondition=_is_as_promised,
    invalidates=(INVENTORY.on(owner="{owner}"),),
)
def sync(claim: Claim, _payload: Payload) -> None:
    """Fetch what the supplier knows of the user, and apply it if it is news.

    The supplier knows users by their user name. Syncs may overtake each other on the way:
    the revision decides, and among claims of one user the epoch.
    """
    owner = _owner_of(claim)
    user = get_user_model().objects.get(pk=owner).get_username()
    try:
        with SUPPLIER.call():
            snapshot = _fetch(user)
    except supplier.SupplierRefused as error:
        raise Refused("supplier_refused", str(error)) from error
    reach("sync.fetched")
    with claim.fenced():
        applied = apply_snapshot(owner, snapshot, epoch=claim.epoch)
        claim.finish(
            {"revision": snapshot.revision, "applied": applied, "items": len(snapshot.items)}
        )


def _fetch(user: str) -> supplier.Snapshot:
    try:
        return supplier.fetch(user)
    except supplier.SupplierUnavailable as error:
        raise DependencyError(SUPPLIER.name, str(error), retry_after=error.retry_after) from error


def _owner_of(claim: Claim) -> int:
    assert claim.owner_id is not None, "A sync is always of a user."
    return claim.owner_id
