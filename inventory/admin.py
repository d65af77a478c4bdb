"""Products in the admin: the catalogue is edited, the stock is counted in and out."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.messages import ERROR
from django.http import HttpRequest

from inventory import stock
from inventory.caches import PRODUCT, PRODUCT_PAGE
from inventory.models import Inventory, OwnedItem, Product
from locks.cache import invalidate

if TYPE_CHECKING:
    _ProductForm = forms.ModelForm[Product]
    _ProductAdmin = admin.ModelAdmin[Product]
    _InventoryAdmin = admin.ModelAdmin[Inventory]
    _OwnedItemAdmin = admin.ModelAdmin[OwnedItem]
else:
    _ProductForm = forms.ModelForm
    _ProductAdmin = _InventoryAdmin = _OwnedItemAdmin = admin.ModelAdmin


class ProductForm(_ProductForm):
    restock = forms.IntegerField(
        required=False,
        help_text="Pieces to count in or, below zero, out. What is reserved cannot go out.",
    )

    class Meta:
        model = Product
        fields = ("sku", "name", "price_minor", "currency")


@admin.register(Product)
class ProductAdmin(_ProductAdmin):
    form = ProductForm
    list_display = ("sku", "name", "price_minor", "currency", "available", "reserved", "version")
    search_fields = ("sku", "name")

    def get_readonly_fields(self, _: HttpRequest, obj: Product | None = None) -> list[str]:
        # The stock may have changed since the page was loaded; it is never written back.
        return ["available", "reserved", "version", *(["sku"] if obj else [])]

    def save_model(
        self, request: HttpRequest, obj: Product, form: _ProductForm, change: bool
    ) -> None:
        stale = [PRODUCT.key(sku=obj.sku), *([] if change else [PRODUCT_PAGE.every_key()])]
        invalidate(*stale)
        fields = [name for name in form.changed_data if name != "restock"]
        obj.save(update_fields=fields if change else None)
        quantity: Any = form.cleaned_data.get("restock")
        if quantity and not stock.restock(obj.pk, quantity):
            self.message_user(request, "The stock stays as it was: those pieces are held.", ERROR)

    def has_delete_permission(self, *_: Any, **__: Any) -> bool:
        return False


class ReadOnlyAdmin:
    """Rows that operations write and people only look at."""

    def has_add_permission(self, *_: Any, **__: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any, **__: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any, **__: Any) -> bool:
        return False


@admin.register(Inventory)
class InventoryAdmin(ReadOnlyAdmin, _InventoryAdmin):
    list_display = ("owner", "revision", "version", "fence")
    list_select_related = ("owner",)


@admin.register(OwnedItem)
class OwnedItemAdmin(ReadOnlyAdmin, _OwnedItemAdmin):
    list_display = ("owner", "sku", "quantity", "source", "operation")
    list_filter = ("source",)
    list_select_related = ("owner",)
    search_fields = ("=owner__username", "sku")
