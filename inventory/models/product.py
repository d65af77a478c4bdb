"""What is for sale, and how many pieces of it there are."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q


class Product(models.Model):
    """A catalogue entry and its stock.

    ``version`` grows with every change of the catalogue entry (name, price, currency) and
    not with the stock. A trigger counts it, so it holds for the admin and for plain SQL.
    The stock is changed by ``inventory.stock`` only.
    """

    sku = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    price_minor = models.BigIntegerField(
        "price", help_text="Of one piece, in the currency's smallest unit (cents)."
    )
    currency = models.CharField(max_length=3, help_text="ISO 4217, in small letters, e.g. eur.")
    version = models.PositiveIntegerField(default=1, editable=False)
    available = models.BigIntegerField(
        default=0, help_text="Pieces in store, those that are reserved included."
    )
    reserved = models.BigIntegerField(
        default=0, editable=False, help_text="Pieces held for purchases that are not paid yet."
    )
    fence = models.BigIntegerField(
        default=0, editable=False, help_text="The highest epoch that has touched the stock."
    )

    class Meta:
        ordering: ClassVar = ["sku"]
        constraints: ClassVar = [
            # The last fence against selling what is not there.
            models.CheckConstraint(
                condition=Q(reserved__gte=0) & Q(reserved__lte=F("available")),
                name="inventory_stock_is_there",
            ),
            models.CheckConstraint(
                condition=Q(price_minor__gte=1), name="inventory_price_is_positive"
            ),
            models.CheckConstraint(
                condition=Q(currency__regex=r"^[a-z]{3}$"), name="inventory_currency_is_a_code"
            ),
            models.CheckConstraint(condition=~Q(sku=""), name="inventory_sku_is_given"),
        ]

    def __str__(self) -> str:
        return self.sku
