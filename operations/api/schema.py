"""What the OpenAPI document says beyond what the views say by themselves."""

from typing import TYPE_CHECKING, Any, cast

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from operations import registry
from operations.api.conditional import ExpectedVersion
from operations.api.problem import MEDIA_TYPE
from operations.api.representation import OperationRepresentation

if TYPE_CHECKING:
    from operations.api.submit import SubmitView

_MEANINGS = {
    400: "Malformed or not valid; nothing was stored.",
    401: "No valid token.",
    403: "Not allowed to you.",
    404: "There is no such thing, or it is not yours.",
    409: "Too late to cancel.",
    412: "What the request relied on has changed.",
    413: "The body is too large.",
    415: "The body is not JSON, or is compressed.",
    422: "The key was used for another request; `operation_id` tells for which.",
    429: "Too many requests. Replays are answered all the same.",
    503: "Not available right now. Send the same request again.",
}


class ProblemRepresentation(serializers.Serializer[Any]):
    """RFC 9457. ``type`` is stable; programs compare it."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    request_id = serializers.CharField(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """``errors`` cannot be declared: a serializer has an attribute of that name."""
        help_text = "By field, when input is not valid."
        return {
            **super().get_fields(),
            "errors": serializers.DictField(required=False, help_text=help_text),
        }


def _header(
    name: str, text: str, *, required: bool = False, on: list[int] | None = None
) -> OpenApiParameter:
    return OpenApiParameter(
        name,
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        required=required,
        description=text,
        response=on or False,
    )


IDEMPOTENCY_KEY = _header(
    "Idempotency-Key",
    "Names the logical action: the same for every attempt to send it, another for another "
    "action. 1 to 255 visible ASCII characters, bare or in quotes.",
    required=True,
)
IF_MATCH = _header("If-Match", "Only if it is still this version.")
IF_NONE_MATCH = _header("If-None-Match", "The ETag of the version that is known already.")
NOT_MODIFIED = OpenApiResponse(description="Still the version that If-None-Match names.")


def problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Responses for ``extend_schema``: the problems that an endpoint may answer with."""
    return {
        (status, MEDIA_TYPE): OpenApiResponse(ProblemRepresentation, description=_MEANINGS[status])
        for status in statuses
    }


def etag_header(*statuses: int) -> OpenApiParameter:
    """The header of answers that a client can ask for again with If-None-Match."""
    return _header("ETag", "The version, in quotes.", on=list(statuses))


def etag_headers(*statuses: int) -> list[OpenApiParameter]:
    """The headers of answers that carry an operation's version."""
    return [
        etag_header(*statuses),
        _header("Retry-After", "Seconds until asking again, while open.", on=list(statuses)),
    ]


class SubmitSchema(AutoSchema):
    """Of a ``SubmitView``: everything follows from its kind."""

    def get_override_parameters(self) -> Any:
        parameters = [
            IDEMPOTENCY_KEY,
            _header("Location", "Where the status is read.", on=[200, 202]),
            _header("Idempotent-Replayed", "`true`: the key was known.", on=[200, 202]),
            *etag_headers(200, 202),
        ]
        return [*parameters, IF_MATCH] if self._submits.has_version else parameters

    def get_request_serializer(self) -> Any:
        serializer = registry.get(self._submits.kind).serializer
        if not self._submits.has_version:
            return serializer
        return type(f"{serializer.__name__}Request", (serializer, ExpectedVersion), {})

    def get_response_serializers(self) -> Any:
        may_change = (412,) if self._submits.has_version else ()
        return {
            202: OpenApiResponse(
                OperationRepresentation, description="Accepted, or a replay that is still open."
            ),
            200: OpenApiResponse(
                OperationRepresentation, description="A replay of one that has ended."
            ),
            **problems(400, 401, *may_change, 413, 415, 422, 429, 503),
        }

    @property
    def _submits(self) -> "SubmitView":
        return cast("SubmitView", self.view)

    def get_tags(self) -> list[str]:
        return [self._submits.kind.partition(".")[0]]


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Registers itself by being defined."""

    target_class = "operations.api.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
