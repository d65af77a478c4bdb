"""The OpenAPI document, the page that shows it, and the way there."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from operations.api import problem

PAGE = "/api/docs"


class _ErrorsInJSON(APIView):
    """Renders in a form of its own what it is there for, and nothing else."""

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        if request.method == "OPTIONS" or response.exception:
            request.accepted_renderer = JSONRenderer()
            request.accepted_media_type = JSONRenderer.media_type
        finished: Response = super().finalize_response(request, response, *args, **kwargs)
        return finished


class Document(_ErrorsInJSON, SpectacularAPIView):
    """There is one version in one language, whatever the query says."""

    authentication_classes = ()

    @extend_schema(exclude=True)
    def get(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        response: Response = self._get_schema_response(request)  # type: ignore[no-untyped-call]
        return response

    def _get_version_parameter(self, _request: Request) -> None:
        """It would become a part of a header."""


class Page(_ErrorsInJSON, SpectacularSwaggerView):
    authentication_classes = ()


@csrf_exempt
def front_door(request: HttpRequest) -> HttpResponse:
    """Leads people who open the bare address to the page."""
    if request.method in ("GET", "HEAD"):
        return HttpResponseRedirect(PAGE)
    detail = "Here is only the way to the documentation."
    return problem.response(
        problem.describe(405, "method_not_allowed", detail), {"Allow": "GET, HEAD"}
    )
