"""An operation as clients see it."""

import math
from typing import Any, ClassVar

from django.utils import timezone
from rest_framework import serializers

from operations.models import OPEN, State

#: A client that polls is asked to wait this long at least, and at most, in seconds.
SOONEST, LATEST = 1, 60


class ErrorRepresentation(serializers.Serializer[Any]):
    """Why an operation ended ``failed`` or ``dead``: a problem object."""

    type = serializers.CharField(help_text="Stable, e.g. urn:sekali:problem:out_of_stock.")
    title = serializers.CharField()
    detail = serializers.CharField()
    category = serializers.CharField(
        help_text="refused: a business answer. Anything else waits for an operator."
    )
    code = serializers.CharField(required=False, help_text="Of a refusal, for programs.")


class OperationRepresentation(serializers.Serializer[Any]):
    """One operation. ``version`` grows with every change and makes the ETag."""

    NAMES: ClassVar = (
        "id",
        "kind",
        "state",
        "result",
        "error",
        "attempts",
        "created_at",
        "started_at",
        "finished_at",
        "version",
    )

    id = serializers.UUIDField()
    kind = serializers.CharField()
    state = serializers.ChoiceField(choices=State.choices)
    result = serializers.JSONField(allow_null=True, help_text="What it came to, once done.")
    error = ErrorRepresentation(allow_null=True)
    attempts = serializers.IntegerField(help_text="Begun since acceptance or the last replay.")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(
        allow_null=True, help_text="Start of the current or last attempt."
    )
    finished_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()


class OperationPage(serializers.Serializer[Any]):
    """A page of operations, with the addresses of its neighbours."""

    results = OperationRepresentation(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    page_size = serializers.IntegerField()


def represent(row: dict[str, Any]) -> dict[str, Any]:
    """A row, as ``verbs`` tells it, in the form that goes to the client."""
    return {name: row[name] for name in OperationRepresentation.NAMES}


def location(row: dict[str, Any]) -> str:
    """Where the status of an operation is read."""
    return f"/api/v1/operations/{row['id']}"


def retry_after(row: dict[str, Any]) -> dict[str, str]:
    """``Retry-After`` while the operation is open; an ended one need not be asked again."""
    if row["state"] not in OPEN:
        return {}
    wait = math.ceil((row["not_before"] - timezone.now()).total_seconds())
    return {"Retry-After": str(min(max(wait, SOONEST), LATEST))}
