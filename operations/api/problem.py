"""Every error as a problem object (RFC 9457), with a type that never changes."""

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError, connection
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response

from locks.cache import Overloaded
from operations import logs
from operations.database import DatabaseUnavailable
from operations.problems import Problem, type_of

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
#: Seconds after which a client may ask again when the database was away.
RETRY_AFTER_OUTAGE = 3
#: And when too many were reading what is not in the cache.
RETRY_AFTER_OVERLOAD = 1

#: The types by which this API can answer, and their titles.
TITLES = {
    "malformed_request": "The request is malformed",
    "malformed_body": "The body cannot be read",
    "invalid_request": "The request is not valid",
    "incomplete_body": "The body did not arrive in time",
    "idempotency_key_missing": "Idempotency-Key is missing",
    "idempotency_key_invalid": "Idempotency-Key is not valid",
    "idempotency_key_reused": "Idempotency-Key is already used",
    "unauthenticated": "Authentication is needed",
    "forbidden": "Not allowed",
    "not_found": "Not found",
    "method_not_allowed": "Method not allowed",
    "not_cancellable": "Too late to cancel",
    "precondition_failed": "What the request relied on has changed",
    "body_too_large": "The body is too large",
    "unsupported_media_type": "The body must be JSON",
    "rate_limited": "Too many requests",
    "headers_too_large": "The headers are too large",
    "not_accepting": "Nothing new is taken in",
    "internal_error": "Something went wrong here",
    "unavailable": "Not available right now",
}


class ApiProblem(exceptions.APIException):
    """Raise it in a view to answer with a problem of one's own.

    :param name: one of :data:`TITLES`, or a stable name with a ``title``
    :param headers: added to the answer
    :param extra: further members of the problem object
    """

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        title: str = "",
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail, name)
        self.status_code = status
        self.problem = describe(status, name, detail, title=title, **extra)
        self.headers = dict(headers or {})


def describe(status: int, name: str, detail: str, *, title: str = "", **extra: Any) -> Problem:
    """A problem object for a client."""
    problem = {
        "type": type_of(name),
        "title": title or TITLES[name],
        "status": status,
        "detail": detail,
    }
    if request_id := logs.current("request_id"):
        problem["request_id"] = request_id
    return problem | extra


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> Response:
    """Django REST framework's hook: an answer for whatever a view raises."""
    problem, headers = _problem_of(error)
    return Response(problem, status=problem["status"], headers=headers, content_type=MEDIA_TYPE)


def _problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    match error:
        case ApiProblem():
            return error.problem, error.headers
        case exceptions.APIException():
            return _of_framework(error)
        case Http404():
            return describe(404, "not_found", "There is nothing here."), {}
        case PermissionDenied():
            return describe(403, "forbidden", "This is not yours to do."), {}
        case SuspiciousOperation():
            return describe(400, "malformed_request", "The request cannot be understood."), {}
        case OperationalError() | InterfaceError() | DatabaseUnavailable():
            return _of_outage(error)
        case Overloaded():
            problem = describe(503, "unavailable", "Too much is being loaded at this moment.")
            return problem, {"Retry-After": str(RETRY_AFTER_OVERLOAD)}
        case _:
            # The client learns nothing but the request id, by which the log line is found.
            log.exception("A view failed: %s", type(error).__name__, exc_info=error)
            return describe(500, "internal_error", "It has been noted."), {}


def _of_framework(error: exceptions.APIException) -> tuple[Problem, dict[str, str]]:
    headers: dict[str, str] = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    detail = str(error.detail) if isinstance(error.detail, str) else ""
    match error:
        case exceptions.ValidationError():
            problem = describe(
                400, "invalid_request", "See errors.", errors=_field_errors(error.detail)
            )
        case exceptions.ParseError():
            problem = describe(400, "malformed_body", detail)
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            problem = describe(error.status_code, "unauthenticated", detail)
        case exceptions.PermissionDenied():
            problem = describe(403, "forbidden", detail)
        case exceptions.NotFound():
            problem = describe(404, "not_found", detail)
        case exceptions.MethodNotAllowed():
            problem = describe(405, "method_not_allowed", detail)
        case exceptions.UnsupportedMediaType():
            problem = describe(
                415, "unsupported_media_type", "Send application/json in UTF-8, not compressed."
            )
        case exceptions.Throttled():
            wait = max(1, math.ceil(getattr(error, "wait", None) or 1))
            headers["Retry-After"] = str(wait)
            problem = describe(429, "rate_limited", f"Try again in {wait} s.")
        case _:
            name = error.default_code
            problem = describe(error.status_code, name, detail, title=name.replace("_", " "))
    return problem, headers


def _of_outage(error: Exception) -> tuple[Problem, dict[str, str]]:
    log.warning("The database does not answer: %s", error)
    if not connection.in_atomic_block:
        # The thread goes on with a new connection.
        connection.close()
    problem = describe(503, "unavailable", "Nothing was stored. Send the same request again.")
    return problem, {"Retry-After": str(RETRY_AFTER_OUTAGE)}


def _field_errors(detail: Any) -> Any:
    return detail if isinstance(detail, dict) else {"non_field_errors": detail}


# --- outside the views of the REST framework -----------------------------------------


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """A problem as a plain Django response."""
    return HttpResponse(
        json.dumps(problem),
        status=problem["status"],
        content_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def handler400(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_people(request):
        return defaults.bad_request(request, exception)
    return response(describe(400, "malformed_request", "The request cannot be understood."))


def handler403(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_people(request):
        return defaults.permission_denied(request, exception)
    return response(describe(403, "forbidden", "This is not yours to do."))


def handler404(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    if exception is not None and _is_for_people(request):
        return defaults.page_not_found(request, exception)
    return response(describe(404, "not_found", "There is nothing at this address."))


def handler500(request: HttpRequest) -> HttpResponseBase:
    if _is_for_people(request):
        return defaults.server_error(request)
    return response(describe(500, "internal_error", "It has been noted."))


def _is_for_people(request: HttpRequest) -> bool:
    return request.path.startswith("/admin/")
