"""What operators have turned down, and who turned it."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class KindControl(models.Model):
    """How a kind is taken in and worked off. A kind without a row is under no control.

    Written by ``operations.controls``; the fields from ``tokens`` on by the dispatcher.
    """

    kind = models.CharField(max_length=100, unique=True)
    accepting = models.BooleanField(
        default=True, help_text="New operations are taken in; replays are answered anyway."
    )
    paused = models.BooleanField(default=False, help_text="Nothing is begun.")
    rate = models.FloatField(
        null=True, blank=True, help_text="Operations begun in a second, at most."
    )
    max_running = models.PositiveIntegerField(
        null=True, blank=True, help_text="Operations that run at once, at most."
    )
    tokens = models.FloatField(db_default=0, help_text="Of the rate: what may be sent now.")
    refilled_at = models.DateTimeField(db_default=Now())
    shed_until = models.DateTimeField(
        null=True, help_text="Too much is waiting: nothing is taken in until then."
    )
    wait = models.PositiveIntegerField(
        db_default=0, help_text="Seconds that a refused client is told to wait."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(rate__isnull=True) | Q(rate__gt=0), name="operations_rate_is_positive"
            ),
            models.CheckConstraint(
                condition=Q(max_running__isnull=True) | Q(max_running__gte=1),
                name="operations_max_running_is_positive",
            ),
        ]

    def __str__(self) -> str:
        return self.kind


class AuditEntry(models.Model):
    """A decision of a person. A trigger of the database refuses to change or delete it."""

    at = models.DateTimeField(db_default=Now())
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    author_name = models.CharField(
        max_length=200, help_text="The user's name, or who was at the command line."
    )
    action = models.CharField(max_length=50)
    subject = models.CharField(max_length=200, help_text="What it is about, e.g. a kind.")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField()

    class Meta:
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [models.Index(fields=["subject", "-at"], name="operations_audit")]

    def __str__(self) -> str:
        return f"{self.action} {self.subject} by {self.author_name}"
