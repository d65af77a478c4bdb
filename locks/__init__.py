"""Leases: locks that end by themselves, for work that several processes could do at once.

A lease saves work; it does not make data right. Whoever was paused past its TTL still
believes for a moment that it holds the lease, so a write that must not come from such a
holder carries the lease's fence (``fenced_update``) or is guarded by the row itself.
"""

from locks.attempts import release
from locks.decorator import leased
from locks.errors import LeaseError, LeaseHeld, LeaseLost, LeaseUnavailable
from locks.fences import fenced_update
from locks.lease import Lease

__all__ = [
    "Lease",
    "LeaseError",
    "LeaseHeld",
    "LeaseLost",
    "LeaseUnavailable",
    "fenced_update",
    "leased",
    "release",
]
