"""No lease is freed by force while the operation that holds it is alive."""

import uuid

from django.db.models.functions import Now

from locks.backend import HeldLease
from locks.held import register_guard
from operations.models import Operation, State


@register_guard
def operation_goes_on(lease: HeldLease) -> str | None:
    """Why this lease must not be taken away, or None.

    An operation's lease names it and its claim (``id:epoch``). While that very claim is
    kept alive by its heartbeat, somebody works under the lease.
    """
    id, _, epoch = lease.owner.partition(":")
    try:
        claim = {"pk": uuid.UUID(id), "epoch": int(epoch)}
    except ValueError:
        return None  # not a lease of an operation
    if Operation.objects.filter(**claim, state=State.RUNNING, due_at__gt=Now()).exists():
        return f"Operation {id} is running under it."
    return None
