"""The scripted kinds over HTTP, for tests of the API itself."""

from typing import Any

from django.urls import path
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from operations.api.submit import SubmitView
from tests.lab.scripted.models import Counter


class Scripted(SubmitView):
    kind = "scripted.local"
    has_version = True

    def check(self, _request: Request, data: dict[str, Any]) -> None:
        """The counter ``refusing`` above zero refuses every label."""
        if data["label"] and Counter.objects.filter(name="refusing", value__gt=0).exists():
            raise ValidationError({"label": ["refused"]})

    def current_version(self, _request: Request, _data: dict[str, Any]) -> int | None:
        """The value of the counter ``version``."""
        return Counter.objects.filter(name="version").values_list("value", flat=True).first()


class Split(SubmitView):
    kind = "scripted.split"


urlpatterns = [
    path("scripted", Scripted.as_view()),
    path("scripted/split", Split.as_view()),
]
