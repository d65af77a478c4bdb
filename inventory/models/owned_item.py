"""Pieces that a user owns, and where they come from."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q


class Source(models.TextChoices):
    #: Told by the supplier; replaced as a whole by the next snapshot.
    SUPPLIER = "supplier"
    #: Bought here; no snapshot touches it.
    PURCHASE = "purchase"


class OwnedItem(models.Model):
    """One line of the supplier's snapshot, or one grant of a purchase.

    ``operation`` is not a foreign key: operations are forgotten long before what they gave.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    sku = models.CharField(max_length=64)
    quantity = models.BigIntegerField()
    source = models.CharField(max_length=10, choices=Source.choices)
    operation = models.UUIDField(null=True, help_text="The operation that granted it.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation"], name="inventory_one_grant_per_operation"),
            models.UniqueConstraint(
                fields=["owner", "sku"],
                condition=Q(source=Source.SUPPLIER),
                name="inventory_one_supplier_line_per_sku",
            ),
            models.CheckConstraint(
                condition=Q(source=Source.SUPPLIER, operation__isnull=True)
                | Q(source=Source.PURCHASE, operation__isnull=False),
                name="inventory_only_purchases_are_granted",
            ),
            models.CheckConstraint(
                condition=Q(quantity__gte=1), name="inventory_owned_quantity_is_positive"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["owner", "sku"], name="inventory_of_owner")]

    def __str__(self) -> str:
        return f"{self.quantity} of {self.sku} ({self.source})"
