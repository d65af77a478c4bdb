"""What stands between the network and a thread.

A thread of the pool is scarce: it keeps a database connection. So a request gets one only
when all of it is here, and gives it back before the answer goes out: neither a client that
sends slowly nor one that reads slowly holds anybody up. A client that hangs up changes
nothing for work that has begun.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from operations.api import problem
from operations.api.correlation import REFUSAL

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Request target and header lines together, in bytes.
HEAD_LIMIT = 32 * 1024
#: An answer given before the end of the body reaches the client only if the rest is read
#: nevertheless: this many bytes of it, waiting this many seconds for more.
DRAIN_LIMIT = 64 * 1024 * 1024
DRAIN_IDLE = 2.0

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
#: What a refused request keeps, to reach a browser and be found in the logs.
_KEPT = frozenset({b"host", b"origin", b"x-request-id", b"x-forwarded-proto"})


class Refusal(NamedTuple):
    """The parts of a problem, see ``operations.api.problem.describe``."""

    status: int
    name: str
    detail: str


class Guard:
    """ASGI middleware in front of the bridge to the threads.

    What it refuses goes to the application all the same, marked and without its body, so
    that one place words problems, adds the headers for browsers and writes the log.

    :param body_limit: bytes
    :param form_limit: bytes, for the forms of the admin, which may hold a payload, encoded
    :param body_timeout: seconds for the whole body
    """

    def __init__(
        self, app: Application, *, body_limit: int, form_limit: int, body_timeout: float
    ) -> None:
        self._app = app
        self._body_limit = body_limit
        self._form_limit = form_limit
        self._body_timeout = body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        inlet = _Inlet(receive)
        try:
            request = await self._admit(scope, inlet)
        except _HungUp:
            return
        start, content = await self._ask(*request)
        if inlet.is_at_end:
            await send(start)
            await send({"type": "http.response.body", "body": content})
            return
        start["headers"] = [*start["headers"], (b"connection", b"close")]
        await send(start)
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await inlet.drain(self._body_timeout)
        await send({"type": "http.response.body", "body": b""})

    async def _admit(self, scope: Scope, inlet: "_Inlet") -> tuple[Scope, bytes]:
        """The request with its whole body, or what is left of one that is refused."""
        is_form = scope["path"].startswith("/admin/")
        limit = self._form_limit if is_form else self._body_limit
        refusal = _refusal_of_head(scope, limit)
        if refusal is not None:
            return _refused(scope, refusal), b""
        try:
            async with asyncio.timeout(self._body_timeout):
                body = await inlet.read(limit)
        except TimeoutError:
            late = Refusal(400, "incomplete_body", "The rest of the body did not come in time.")
            return _refused(scope, late), b""
        if body is None:
            return _refused(scope, _too_large(limit)), b""
        return _complete(scope, body), body

    async def _ask(self, scope: Scope, body: bytes) -> tuple[Message, bytes]:
        """The application's whole answer, as soon as it has one."""
        starts: list[Message] = []
        parts: list[bytes] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                starts.append(message)
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(scope, receive, send)
            return _measured(_sound(starts[0]), b"".join(parts))
        except Exception:
            log.exception("The application failed outside its own error handling.")
            return plain(500, "internal_error", "It has been noted.")


class _HungUp(Exception):
    """The client went away in the middle of its body."""


class _Inlet:
    """What still comes from the client."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_at_end = False

    async def read(self, limit: int) -> bytes | None:
        """The body up to its end; None: it is longer than the limit.

        :raises _HungUp: there will be no end
        """
        body = bytearray()
        while not self.is_at_end:
            body += await self._next()
            if len(body) > limit:
                return None
        return bytes(body)

    async def drain(self, seconds: float) -> None:
        """Read and forget, within bounds."""
        left = DRAIN_LIMIT
        try:
            async with asyncio.timeout(seconds):
                while left > 0 and not self.is_at_end:
                    left -= len(await asyncio.wait_for(self._next(), DRAIN_IDLE))
        except (TimeoutError, _HungUp):
            return

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise _HungUp
        self.is_at_end = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part


def plain(status: int, name: str, detail: str, **extra: str) -> tuple[Message, bytes]:
    """A problem made without the application, as the start of a response and its content."""
    content = json.dumps(problem.describe(status, name, detail, **extra)).encode()
    headers = [
        (b"content-type", problem.MEDIA_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}, content


def _sound(start: Message) -> Message:
    """
    :raises ValueError: a header that the server could not send
    """
    for name, value in start["headers"]:
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise ValueError(f"The header {name!r} contains a control character.")
    return start


def _measured(start: Message, content: bytes) -> tuple[Message, bytes]:
    """With its length, which an error handler of Django does not tell."""
    if content and not any(name == b"content-length" for name, _ in start["headers"]):
        start["headers"] = [*start["headers"], (b"content-length", str(len(content)).encode())]
    return start, content


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "body_too_large", f"A body has at most {limit} bytes.")


def _refusal_of_head(scope: Scope, body_limit: int) -> Refusal | None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    target = scope.get("raw_path", b""), scope["query_string"]
    size = sum(len(name) + len(value) for name, value in [target, *headers])
    if size > HEAD_LIMIT:
        detail = f"Address and headers have at most {HEAD_LIMIT} bytes together."
        return Refusal(431, "headers_too_large", detail)
    if any(_CONTROL.search(value) for _, value in headers):
        return Refusal(400, "malformed_request", "A header contains a control character.")
    if not scope["query_string"].isascii():
        detail = "The query string contains bytes that must be percent-encoded."
        return Refusal(400, "malformed_request", detail)
    if "\x00" in scope["path"]:
        return Refusal(404, "not_found", "There is nothing at this address.")
    if len(_values(headers, b"idempotency-key")) > 1:
        return Refusal(400, "idempotency_key_invalid", "There are two Idempotency-Key headers.")
    codings = _values(headers, b"content-encoding")
    if any(coding.strip().lower() not in (b"", b"identity") for coding in codings):
        return Refusal(415, "unsupported_media_type", "The body must not be compressed.")
    if any(value.strip().lower() != b"chunked" for value in _values(headers, b"transfer-encoding")):
        return Refusal(415, "unsupported_media_type", "Of transfer codings only chunked is read.")
    lengths = _values(headers, b"content-length")
    if any(not value.isdigit() or len(value) > 18 for value in lengths):
        return Refusal(400, "malformed_request", "Content-Length is not a number.")
    if any(int(value) > body_limit for value in lengths):
        return _too_large(body_limit)
    return None


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for found, value in headers if found == name]


def _complete(scope: Scope, body: bytes) -> Scope:
    """The scope as an application wants it that reads a body of known length."""
    framing = (b"content-length", b"transfer-encoding", b"expect")
    headers = [
        (name, value)
        for name, value in scope["headers"]
        # In WSGI `a_b` and `a-b` are one name, so one could be passed off as the other.
        if name not in framing and b"_" not in name
    ]
    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}


def _refused(scope: Scope, refusal: Refusal) -> Scope:
    headers = {
        name: value
        for name, value in scope["headers"]
        if name in _KEPT and not _CONTROL.search(value)
    }
    return {
        **scope,
        "headers": list(headers.items()),
        "query_string": b"",
        REFUSAL: refusal._asdict(),
    }
