"""What this app keeps in Postgres: leases, for the backend of that name, and invalidations."""

from typing import ClassVar

from django.db import models


class LeaseRow(models.Model):
    """One key that has ever been leased.

    The row stays when the lease ends, so that a fence is always drawn while the row is
    locked: two first acquires of a key could otherwise draw in one order and insert in the
    other. ``expires_at`` is by the database's clock; a row whose time is over is free.
    """

    key = models.TextField(primary_key=True)
    owner = models.TextField(default="", blank=True)
    fence = models.BigIntegerField(default=0)
    host = models.TextField(default="", blank=True)
    pid = models.IntegerField(default=0)
    process = models.TextField(default="", blank=True)
    acquired_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "locks_lease"
        verbose_name = "lease"

    def __str__(self) -> str:
        return self.key


class InvalidationRecord(models.Model):
    """A key of the cache that is to be deleted (``locks/cache/records.py``).

    Written in the transaction that changes what was cached, and gone when the cache has
    answered that the key is deleted.
    """

    key = models.TextField()
    recorded_at = models.DateTimeField()
    due_at = models.DateTimeField()

    class Meta:
        db_table = "locks_invalidation"
        verbose_name = "pending invalidation"
        indexes: ClassVar = [models.Index(fields=["due_at"], name="locks_invalidation_due")]

    def __str__(self) -> str:
        return self.key
