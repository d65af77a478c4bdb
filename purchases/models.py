"""A purchase: pieces held or sold, and how they are paid for."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from inventory.models import Product


class PurchaseState(models.TextChoices):
    """Who puts a purchase into a state, and who takes it out.

    ::

        reserved ── paid ──────────▶ confirmed
           │ └───── not paid ──────▶ released    the pieces are free again
           └─────── compensated ───▶ refunded    they are, and the money went back
    """

    RESERVED = "reserved"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    REFUNDED = "refunded"


class Purchase(models.Model):
    """Rows are written by ``purchases.verbs`` only.

    ``operation`` is not a foreign key: operations are forgotten long before purchases.
    The idempotency key of the present call to the gateway is ``{operation}:{key_number}``;
    the number is written down before it is used.
    """

    id = models.UUIDField(primary_key=True)
    operation = models.UUIDField(help_text="The operation that made it.")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="+")
    sku = models.CharField(max_length=64)
    quantity = models.PositiveIntegerField()
    amount = models.BigIntegerField(
        help_text="Of all pieces, in the currency's smallest unit; fixed when they were reserved."
    )
    currency = models.CharField(max_length=3)
    payment_method = models.CharField(max_length=100)
    state = models.CharField(max_length=10, choices=PurchaseState.choices)
    key_number = models.PositiveSmallIntegerField(default=1)
    key_made_at = models.DateTimeField(
        db_default=Now(), help_text="When the present key was written down."
    )
    key_sent_at = models.DateTimeField(
        db_default=Now(), help_text="When the present key was last about to be sent."
    )
    charge = models.CharField(
        max_length=255, blank=True, default="", help_text="The gateway's id of the payment."
    )
    created_at = models.DateTimeField(db_default=Now())
    version = models.PositiveIntegerField(default=1)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation"], name="purchases_one_per_operation"),
            models.UniqueConstraint(
                fields=["charge"], condition=~Q(charge=""), name="purchases_one_per_charge"
            ),
            models.CheckConstraint(
                condition=Q(state__in=PurchaseState.values), name="purchases_state_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(state=PurchaseState.CONFIRMED) | ~Q(charge=""),
                name="purchases_confirmed_is_charged",
            ),
            models.CheckConstraint(
                condition=Q(quantity__gte=1, amount__gte=1, key_number__gte=1),
                name="purchases_numbers_are_positive",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} of {self.sku} ({self.state})"

    @property
    def charge_key(self) -> str:
        """The idempotency key under which the gateway is asked for the charge."""
        return f"{self.operation}:{self.key_number}"


class ReconciliationMark(models.Model):
    """How far gateway and store have been compared; one row."""

    position = models.DateTimeField(help_text="Everything before it has been compared.")

    def __str__(self) -> str:
        return f"{self.position:%Y-%m-%d %H:%M:%S}"
