"""What each attempt came to."""

from typing import ClassVar

from django.db import models

from operations.models.operation import Operation
from operations.outcomes import Outcome


class Attempt(models.Model):
    """One row for each ended attempt, written by the statement that ended it."""

    operation = models.ForeignKey(
        Operation, on_delete=models.CASCADE, db_index=False, related_name="history"
    )
    epoch = models.BigIntegerField()
    kind = models.CharField(max_length=100)
    worker = models.CharField(max_length=255)
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    outcome = models.CharField(max_length=10, choices=Outcome.choices)
    category = models.CharField(max_length=12, blank=True, default="")
    dependency = models.CharField(max_length=100, blank=True, default="")
    error_type = models.CharField(max_length=200, blank=True, default="")
    message = models.TextField(blank=True, default="")
    next_delay = models.FloatField(null=True, help_text="Seconds until the next attempt.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["operation", "epoch"], name="operations_one_attempt_per_claim"
            ),
            models.CheckConstraint(
                condition=models.Q(outcome__in=Outcome.values),
                name="operations_outcome_is_known",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["finished_at"], name="operations_attempt_end")]

    def __str__(self) -> str:
        return f"{self.outcome} {self.operation_id}"
