"""Relative to ``/api/v1/``; no trailing slashes."""

from django.urls import path

from purchases.views import PurchaseDetail, PurchaseView

urlpatterns = [
    path("purchases", PurchaseView.as_view()),
    path("purchases/<uuid:id>", PurchaseDetail.as_view()),
]
