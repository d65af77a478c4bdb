"""A purchase as clients see it."""

from rest_framework import serializers

from purchases.models import Purchase


class PurchaseRepresentation(serializers.ModelSerializer[Purchase]):
    """``version`` grows with every change of the state and makes the ETag."""

    class Meta:
        model = Purchase
        fields = (
            "id",
            "sku",
            "quantity",
            "amount",
            "currency",
            "state",
            "created_at",
            "version",
        )
        read_only_fields = fields
