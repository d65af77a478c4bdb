"""One request, one id: in every log line, in the answer, and on the operation."""

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from operations import logs
from operations.api import problem

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_META = "sekali.correlation"
#: Where whoever received the request leaves what it found wrong with it, see ``config.guard``.
REFUSAL = "sekali.refusal"


class Correlation(NamedTuple):
    request_id: str
    #: As the client sent it, if it was well-formed; else empty.
    traceparent: str


class CorrelationMiddleware:
    """Gives the request its id, writes the access log, answers what was refused on arrival."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        ids = _read(request)
        request.META[_META] = ids
        with logs.context(request_id=ids.request_id):
            response = self.get_response(request)
            response.headers["X-Request-ID"] = ids.request_id
            ms = (time.perf_counter() - started) * 1000
            with logs.context(
                method=request.method,
                path=request.path[:500],
                status=response.status_code,
                ms=round(ms, 1),
            ):
                log.info("%s %d", request.method, response.status_code)
        return response

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Here, behind the other middleware, so that a browser may read the refusal, too."""
        refusal = request.META.get("asgi.scope", {}).get(REFUSAL)
        if refusal is None:
            return None
        return problem.response(problem.describe(**refusal))


def of(request: HttpRequest) -> Correlation:
    """The ids of a request that has come through the middleware."""
    ids: Correlation = request.META.get(_META) or _read(request)
    return ids


def _read(request: HttpRequest) -> Correlation:
    given = request.META.get("HTTP_X_REQUEST_ID", "")
    trace = request.META.get("HTTP_TRACEPARENT", "")
    return Correlation(
        given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
        trace if _TRACEPARENT.fullmatch(trace) else "",
    )
