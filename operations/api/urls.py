"""Relative to ``/api/v1/``; no trailing slashes."""

from django.urls import path

from operations.api.kinds import KindDetail, KindList
from operations.api.views import OperationCancel, OperationDetail, OperationList

urlpatterns = [
    path("operations", OperationList.as_view()),
    path("operations/<str:id>", OperationDetail.as_view()),
    path("operations/<str:id>/cancel", OperationCancel.as_view()),
    path("ops/kinds", KindList.as_view()),
    path("ops/kinds/<str:kind>", KindDetail.as_view()),
]
