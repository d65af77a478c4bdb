"""For staff: what is turned down, and turning it down and up."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from operations import controls
from operations.api import schema, strict
from operations.api.problem import ApiProblem
from operations.audit import Author
from operations.controls import Report
from operations.fields import IntegerField, NumberField
from operations.registry import UnknownKind


class MayControl(BasePermission):
    """Staff who may see controls, and for changes, may change them."""

    def has_permission(self, request: Request, _view: object) -> bool:
        user = request.user
        if not request.auth or not user.is_staff:
            return False
        change = user.has_perm("operations.change_kindcontrol")
        if request.method in SAFE_METHODS:
            return change or user.has_perm("operations.view_kindcontrol")
        return change


class KindRepresentation(serializers.Serializer[Any]):
    kind = serializers.CharField()
    queue = serializers.CharField()
    critical = serializers.BooleanField(help_text="Taken in however much is waiting.")
    accepting = serializers.BooleanField()
    paused = serializers.BooleanField()
    rate = serializers.FloatField(allow_null=True, help_text="Begun in a second, at most.")
    max_running = serializers.IntegerField(allow_null=True, help_text="At once, at most.")
    pending = serializers.IntegerField()
    behind_dead = serializers.IntegerField(
        help_text="Of those pending: wait behind a dead one, until somebody decides about it."
    )
    running = serializers.IntegerField()
    oldest = serializers.FloatField(
        help_text="Seconds that the oldest of the others has waited to be begun."
    )
    shedding = serializers.BooleanField(help_text="Refused, since too much is waiting.")


class KindChange(serializers.Serializer[Any]):
    """What is left out stays as it is; null lifts a limit."""

    accepting = serializers.BooleanField(required=False)
    paused = serializers.BooleanField(required=False)
    rate = NumberField(
        required=False,
        allow_null=True,
        min_value=controls.LEAST_RATE,
        max_value=controls.MOST_RATE,
    )
    max_running = IntegerField(
        required=False,
        allow_null=True,
        min_value=controls.LEAST_RUNNING,
        max_value=controls.MOST_RUNNING,
    )
    reason = serializers.CharField(max_length=1_000, help_text="Goes into the audit log.")


class KindList(APIView):
    """Every kind, how it is controlled and what waits."""

    permission_classes = (MayControl,)

    @extend_schema(
        operation_id="kinds_list",
        tags=["operators"],
        responses={200: KindRepresentation(many=True), **schema.problems(401, 403, 429, 503)},
    )
    def get(self, request: Request) -> Response:
        strict.no_query(request)
        return Response([asdict(kind) for kind in controls.report()])


class KindDetail(APIView):
    """One kind; a change counts from its answer on."""

    permission_classes = (MayControl,)

    @extend_schema(
        operation_id="kinds_retrieve",
        tags=["operators"],
        responses={200: KindRepresentation, **schema.problems(401, 403, 404, 429, 503)},
    )
    def get(self, _request: Request, kind: str) -> Response:
        return Response(asdict(_find(kind)))

    @extend_schema(
        operation_id="kinds_change",
        tags=["operators"],
        request=KindChange,
        responses={
            200: KindRepresentation,
            **schema.problems(400, 401, 403, 404, 413, 415, 429, 503),
        },
    )
    def patch(self, request: Request, kind: str) -> Response:
        strict.no_query(request)
        _find(kind)
        change = KindChange(data=strict.body_of(request))
        strict.validate(change)
        values = dict(change.validated_data)
        reason = values.pop("reason")
        assert request.user is not None
        author = Author(request.user.get_username(), request.user.pk)
        try:
            controls.change(kind, author, reason, **values)
        except ValueError as error:
            raise ValidationError({"non_field_errors": [ErrorDetail(str(error))]}) from error
        return Response(asdict(_find(kind)))


def _find(name: str) -> Report:
    try:
        return next(kind for kind in controls.report() if kind.kind == name)
    except (StopIteration, UnknownKind):
        raise ApiProblem(404, "not_found", f"There is no kind {name[:50]}.") from None
