"""The head of a user's inventory: which snapshot it holds, and how often it changed."""

from typing import ClassVar

from django.conf import settings
from django.db import models


class Inventory(models.Model):
    """One row a user, made when there is something to say; none is the same as version 0.

    ``version`` grows with every change of what the user owns or of ``revision``, and makes
    the ETag.
    """

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, primary_key=True, related_name="+"
    )
    revision = models.BigIntegerField(
        null=True, help_text="Of the supplier's snapshot in force; empty before the first."
    )
    version = models.PositiveIntegerField(default=0)
    fence = models.BigIntegerField(
        default=0, help_text="The epoch that applied the snapshot; an older one comes too late."
    )

    class Meta:
        verbose_name_plural = "inventories"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(revision__isnull=True) | models.Q(revision__gte=0),
                name="inventory_revision_is_counted",
            )
        ]

    def __str__(self) -> str:
        return f"inventory of {self.owner_id}, version {self.version}"
