"""What people see of this app in Django admin."""

from locks.admin.invalidations import InvalidationAdmin
from locks.admin.leases import LeaseAdmin

__all__ = ["InvalidationAdmin", "LeaseAdmin"]
