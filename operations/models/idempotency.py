"""The memory of keys: one row for each logical action of a client."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from operations.models.operation import Operation

#: A second request with a known key runs into this constraint, and nothing else decides.
ONE_OPERATION_PER_KEY = "operations_one_operation_per_key"


class IdempotencyRecord(models.Model):
    """A key and the operation it stands for.

    Status, response code and body of a replay are those of the operation: derived,
    never stored twice. The row is valid as long as it exists; pruning is the only expiry.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    kind = models.CharField(max_length=100)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of the canonical input.")
    fingerprint_version = models.PositiveSmallIntegerField()
    operation = models.OneToOneField(Operation, on_delete=models.PROTECT, related_name="record")
    replays = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "kind", "key"], name=ONE_OPERATION_PER_KEY)
        ]
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="operations_key_expiry")]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
