"""One accepted request and everything that is known of its fate."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from operations.models.fields import IdentityField


class State(models.TextChoices):
    """Who puts a row into a state, and who takes it out.

    ::

                    claim                      finish
        pending ───────────────▶ running ───────────────▶ done
          ▲  ▲                    │ │ │
          │  └─ retry / defer ────┘ │ └──── refuse ─────▶ failed
          │     rescue              └────── give up ────▶ dead
          └────────────────── replay ────────────────────  dead
        pending, never claimed ── cancel ──▶ cancelled ◀── discard ── dead
    """

    #: Put in by accept, retry, defer, rescue and replay; taken out by claim and cancel.
    PENDING = "pending"
    #: Put in by claim; taken out by settle, by whoever holds the claim, or by rescue.
    RUNNING = "running"
    #: The effect is committed. Final.
    DONE = "done"
    #: A business answer, such as "out of stock". Final; nobody need act.
    FAILED = "failed"
    #: Out of attempts, or hopeless. Taken out by an operator: replay or discard.
    DEAD = "dead"
    #: Never begun, or undone by an operator. Final.
    CANCELLED = "cancelled"


OPEN = (State.PENDING, State.RUNNING)
ENDED = (State.DONE, State.FAILED, State.DEAD, State.CANCELLED)

#: The last fence against two attempts at once; the claim looks for it by name.
ONE_RUNNING_PER_RESOURCE = "operations_one_running_per_resource"


class Operation(models.Model):
    """Rows are written by ``operations.verbs`` only."""

    id = models.UUIDField(primary_key=True, help_text="UUIDv7; also the Celery task id.")
    seq = IdentityField(help_text="Order of acceptance.")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        db_index=False,
        related_name="+",
        help_text="Empty for operations of the system itself, such as a compensation.",
    )
    kind = models.CharField(max_length=100)
    payload = models.JSONField()
    payload_revision = models.PositiveSmallIntegerField(default=1)
    resource = models.CharField(max_length=255, blank=True, default="")
    state = models.CharField(max_length=10, choices=State.choices)
    epoch = models.BigIntegerField(null=True, help_text="The fencing token of the last claim.")
    claimed_by = models.CharField(max_length=255, blank=True, default="")
    not_before = models.DateTimeField(help_text="No claim before this instant.")
    due_at = models.DateTimeField(null=True, help_text="When the dispatcher must look again.")
    sent_at = models.DateTimeField(null=True, help_text="Last publish; empty: a publish is owed.")
    effects_began = models.BooleanField(default=False)
    attempts = models.PositiveIntegerField(default=0)
    losses = models.PositiveIntegerField(default=0)
    bugs = models.PositiveIntegerField(default=0)
    deferrals = models.PositiveIntegerField(default=0)
    deferred_since = models.DateTimeField(null=True)
    precondition = models.JSONField(null=True)
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)
    request_id = models.CharField(max_length=128, blank=True, default="")
    traceparent = models.CharField(max_length=128, blank=True, default="")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, help_text="Start of the current or last attempt.")
    finished_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1)

    class Meta:
        permissions: ClassVar = [("cancel_any_operation", "Can cancel operations of others")]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=State.values), name="operations_state_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(state=State.RUNNING) | (Q(epoch__isnull=False) & ~Q(claimed_by="")),
                name="operations_running_is_claimed",
            ),
            models.CheckConstraint(
                condition=Q(state__in=OPEN, finished_at__isnull=True, due_at__isnull=False)
                | Q(state__in=ENDED, finished_at__isnull=False, due_at__isnull=True),
                name="operations_ended_is_not_due",
            ),
            models.CheckConstraint(
                condition=Q(state__in=(State.FAILED, State.DEAD), error__isnull=False)
                | (
                    ~Q(state__in=(State.FAILED, State.DEAD, State.CANCELLED))
                    & Q(error__isnull=True)
                )
                | Q(state=State.CANCELLED),
                name="operations_error_tells_why",
            ),
            models.CheckConstraint(
                condition=Q(result__isnull=True) | Q(state=State.DONE),
                name="operations_result_is_of_done",
            ),
            models.UniqueConstraint(
                fields=["resource"],
                condition=Q(state=State.RUNNING) & ~Q(resource=""),
                name=ONE_RUNNING_PER_RESOURCE,
            ),
        ]
        indexes: ClassVar = [
            # What the dispatcher must send or rescue; small, whatever the backlog.
            models.Index(
                F("due_at"),
                condition=Q(state=State.RUNNING) | Q(state=State.PENDING, sent_at__isnull=True),
                name="operations_due",
            ),
            # Who is next on a resource, and who is dead on it; also the open rows as a whole.
            # By state first, so that neither stands in the way of a look at the other.
            models.Index(
                F("resource"),
                F("state"),
                F("seq"),
                condition=Q(state__in=OPEN) | (Q(state=State.DEAD) & ~Q(resource="")),
                name="operations_open",
            ),
            # A client's list, newest first.
            models.Index(F("owner"), F("seq").desc(), name="operations_of_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN
