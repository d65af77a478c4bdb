"""What a user is told is for that user alone.

The address of an inventory is the same for all users, and so may its ETag be. In a browser
that two of them use, one after the other, the second would ask with the ETag of the first, be
answered with 304, and be shown the first one's inventory, did ``Vary`` not name the token.
"""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

_PRIVATE = "/api/v1/"


class PrivacyMiddleware:
    """Keeps caches on the way from showing an answer to another user, or an error for longer
    than it lasts: what does not say how it may be kept is not kept."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if request.path.startswith(_PRIVATE):
            patch_vary_headers(response, ["Authorization"])
            response.headers.setdefault("Cache-Control", "no-store")
        return response
