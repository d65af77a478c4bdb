"""Relative to ``/api/v1/``; no trailing slashes."""

from django.urls import path

from inventory.views import InventoryView, ProductDetail, ProductList, SyncView

urlpatterns = [
    path("inventory", InventoryView.as_view()),
    path("inventory/sync", SyncView.as_view()),
    path("products", ProductList.as_view()),
    path("products/<str:sku>", ProductDetail.as_view()),
]
