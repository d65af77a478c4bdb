"""The status of operations, their list, and the last moment to cancel one."""

import re
import uuid
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ErrorDetail, Throttled, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from operations import registry, verbs
from operations.api import limits, schema, strict
from operations.api.authentication import owner_of
from operations.api.conditional import (
    Expected,
    ExpectedVersion,
    etag,
    expectation,
    require,
    respond,
)
from operations.api.pagination import NewestFirst
from operations.api.problem import ApiProblem
from operations.api.representation import (
    OperationPage,
    OperationRepresentation,
    represent,
    retry_after,
)
from operations.database import persistently
from operations.intake import publish
from operations.models import Operation, State

#: What a status answer is made of.
_COLUMNS = (*OperationRepresentation.NAMES, "not_before", "epoch")
#: Between a cancel that came too late and the look at why, the operation may have changed.
_TRIES = 3
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class OperationList(APIView):
    """Your operations, newest first."""

    _PARAMETERS = frozenset({"state", "kind", "cursor", "page_size"})

    @extend_schema(
        operation_id="operations_list",
        tags=["operations"],
        parameters=[
            OpenApiParameter("state", enum=State.values, description="Only those in this state."),
            OpenApiParameter("kind", description="Only those of this kind."),
            OpenApiParameter("cursor", description="From next or previous of another page."),
            OpenApiParameter(
                "page_size",
                OpenApiTypes.INT,
                description=f"1 to {NewestFirst.max_page_size}, default {NewestFirst.page_size}.",
            ),
        ],
        responses={200: OperationPage, **schema.problems(400, 401, 429, 503)},
    )
    def get(self, request: Request) -> Response:
        query = request.query_params
        filters = {name: query[name] for name in ("state", "kind") if name in query}
        self._check(set(query), filters)
        pages = NewestFirst()
        found = (
            Operation.objects.filter(owner_id=owner_of(request), **filters)
            .values(*_COLUMNS, "seq")
            .order_by()
        )
        page: list[dict[str, Any]] | None = persistently(
            lambda: pages.paginate_queryset(found, request, view=self)
        )
        return pages.get_paginated_response([represent(row) for row in page or []])

    def _check(self, names: set[str], filters: dict[str, str]) -> None:
        errors: dict[str, list[ErrorDetail]] = {
            name: [ErrorDetail("There is no such query parameter.", code="unknown")]
            for name in names - self._PARAMETERS
        }
        known = {"state": State.values, "kind": [kind.name for kind in registry.kinds()]}
        for name, value in filters.items():
            if value not in known[name]:
                errors[name] = [ErrorDetail(f"There is no such {name}.", code="unknown")]
        if errors:
            raise ValidationError(errors)


class OperationDetail(APIView):
    """One operation, read from the database: never from a cache, never late."""

    @extend_schema(
        operation_id="operations_retrieve",
        tags=["operations"],
        parameters=[schema.IF_NONE_MATCH, *schema.etag_headers(200, 304)],
        responses={
            200: OperationRepresentation,
            304: schema.NOT_MODIFIED,
            **schema.problems(401, 404, 429, 503),
        },
    )
    def get(self, request: Request, id: str) -> Response:
        """The state as it is now. 200 as long as the operation is kept, even if it failed."""
        row = _find(request, id)
        return respond(request, represent(row), row["version"], retry_after(row))


class OperationCancel(APIView):
    """The last moment to cancel is before the first attempt."""

    @extend_schema(
        operation_id="operations_cancel",
        tags=["operations"],
        parameters=[schema.IF_MATCH, *schema.etag_headers(200)],
        request=ExpectedVersion,
        responses={
            200: OperationRepresentation,
            **schema.problems(400, 401, 404, 409, 412, 415, 429, 503),
        },
    )
    def post(self, request: Request, id: str) -> Response:
        """Cancel what no worker has begun. Cancelling again is answered with 200, too."""
        wait = limits.of_writes(owner_of(request), "operations.cancel")
        expected = self._expected(request)
        for _ in range(_TRIES):
            if wait is None and (done := _cancel(request, id, expected)):
                return _answer(done)
            row = _find(request, id)
            if row["state"] == State.CANCELLED:
                return _answer(row)
            if wait is not None:
                raise Throttled(wait)
            if expected is not None:
                require(expected, row["version"])
            if row["state"] != State.PENDING or row["epoch"] is not None:
                break
        raise ApiProblem(
            409,
            "not_cancellable",
            "It has begun, and may have had effects already.",
            state=row["state"],
        )

    def _expected(self, request: Request) -> Expected | None:
        strict.no_query(request)
        promise = ExpectedVersion(data=strict.body_of(request))
        strict.validate(promise)
        return expectation(request, promise)


def _find(request: Request, id: str) -> dict[str, Any]:
    """One operation of the asking user.

    :raises ApiProblem: 404
    """
    mine = Operation.objects.filter(pk=_uuid(id), owner_id=owner_of(request))
    rows = persistently(lambda: list(mine.values(*_COLUMNS)))
    if not rows:
        raise _no_such(id)
    return dict(rows[0])


def _cancel(request: Request, id: str, expected: Expected | None) -> dict[str, Any] | None:
    versions = expected.versions if expected else None
    found = persistently(
        lambda: verbs.cancel(
            _uuid(id),
            owner=owner_of(request),
            versions=None if versions is None else sorted(versions),
        )
    )
    if found is None:
        return None
    row, woken = found
    for envelope in woken:
        publish(envelope)
    return row


def _answer(row: dict[str, Any]) -> Response:
    return Response(represent(row), headers={"ETag": etag(row["version"])})


def _uuid(id: str) -> uuid.UUID:
    if not _UUID.fullmatch(id):
        raise _no_such(id)
    return uuid.UUID(id)


def _no_such(id: str) -> ApiProblem:
    return ApiProblem(404, "not_found", f"You have no operation {id[:50]}.")
