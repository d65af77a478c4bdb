"""What needs a person to look at it."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from operations.models.operation import Operation
from operations.outcomes import Category


class LetterState(models.TextChoices):
    #: Put in by give-up; waits for a decision.
    OPEN = "open"
    #: Discarded by a person, its outside effects being undone.
    DISCARDING = "discarding"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


UNSETTLED = (LetterState.OPEN, LetterState.DISCARDING)


class DeadLetter(models.Model):
    """An operation that ended ``dead``, or a message for which no operation can be found."""

    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, null=True, related_name="letters"
    )
    body = models.BinaryField(null=True, help_text="The raw message, when there is no operation.")
    headers = models.JSONField(null=True)
    queue = models.CharField(max_length=255, blank=True, default="")
    message_id = models.CharField(
        max_length=100,
        blank=True,
        db_default="",
        help_text="Which message this is; recording it again changes nothing.",
    )
    kind = models.CharField(max_length=100, blank=True, default="")
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    first_processed_at = models.DateTimeField(null=True)
    last_processed_at = models.DateTimeField(null=True)
    category = models.CharField(max_length=12, choices=Category.choices)
    dependency = models.CharField(max_length=100, blank=True, default="")
    error_type = models.CharField(max_length=200, blank=True, default="")
    message = models.TextField(blank=True, default="")
    traceback = models.TextField(blank=True, default="")
    signature = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=LetterState.choices)
    created_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True, default="")

    class Meta:
        permissions: ClassVar = [
            ("replay_deadletter", "Can replay dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=LetterState.values), name="operations_letter_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(category__in=Category.values),
                name="operations_letter_category_is_known",
            ),
            models.UniqueConstraint(
                fields=["operation"],
                condition=Q(state__in=UNSETTLED),
                name="operations_one_unsettled_letter",
            ),
            models.UniqueConstraint(
                fields=["message_id"],
                condition=~Q(message_id=""),
                name="operations_one_letter_a_message",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["state", "-created_at"], name="operations_letters_by_state")
        ]

    def __str__(self) -> str:
        return f"{self.category} {self.kind} {self.operation_id or self.queue}"
