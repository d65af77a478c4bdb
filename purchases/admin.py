"""Purchases in the admin, to look at: only operations change them."""

from typing import TYPE_CHECKING

from django.contrib import admin

from inventory.admin import ReadOnlyAdmin
from purchases.models import Purchase

if TYPE_CHECKING:
    _PurchaseAdmin = admin.ModelAdmin[Purchase]
else:
    _PurchaseAdmin = admin.ModelAdmin


@admin.register(Purchase)
class PurchaseAdmin(ReadOnlyAdmin, _PurchaseAdmin):
    list_display = ("id", "owner", "sku", "quantity", "amount", "currency", "state", "created_at")
    list_filter = ("state",)
    list_select_related = ("owner",)
    search_fields = ("=id", "=operation", "=charge", "sku", "=owner__username")
    date_hierarchy = "created_at"
