"""Which handler a request belongs to."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from deploy.sandbox.server import Request, Response, error_response

#: Answers a request whose path gave the second argument's names their values.
RouteHandler = Callable[[Request, Mapping[str, str]], Awaitable[Response | None]]


@dataclass(frozen=True)
class Route:
    """A method and a path such as ``/users/{user}/items``."""

    method: str
    path: str
    handler: RouteHandler


class Router:
    """Tries its routes in order; a path that no route knows is answered here."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [(route, route.path.split("/")) for route in routes]

    async def __call__(self, request: Request) -> Response | None:
        """Answer ``request``: by its route, or with 404 or 405."""
        segments = [unquote(segment) for segment in request.path.split("/")]
        allowed: list[str] = []
        for route, pattern in self._routes:
            values = _match(pattern, segments)
            if values is None:
                continue
            if route.method == request.method:
                return await route.handler(request, values)
            allowed.append(route.method)
        if not allowed:
            return error_response(404, f"Unrecognized request URL: {request.path}.")
        refusal = error_response(405, f"{request.path} answers {', '.join(allowed)} only.")
        return Response(refusal.status, refusal.body, {"Allow": ", ".join(allowed)})


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    values: dict[str, str] = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not given:
                return None
            values[expected[1:-1]] = given
        elif expected != given:
            return None
    return values
