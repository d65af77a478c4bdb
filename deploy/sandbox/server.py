"""A small HTTP/1.1 server on one event loop, whose handlers may leave a caller unanswered.

Web servers answer for an application that fails to; the sandbox has to be able to act and
then close the connection without a word, which is why it brings its own.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11

logger = logging.getLogger("sandbox")

BODY_LIMIT = 1024 * 1024
#: Seconds a kept connection may rest; longer than the clients here keep theirs.
IDLE_TIMEOUT = 75.0
#: Seconds a caller has to send a whole request once it has begun.
REQUEST_TIMEOUT = 30.0
_CHUNK = 65536


@dataclass(frozen=True)
class Request:
    """One request, read whole. Header names are in lower case; ``path`` is still quoted."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    """An answer; ``body`` is JSON text already encoded."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers a request; ``None`` closes the connection without an answer.
Handler = Callable[[Request], Awaitable[Response | None]]


def json_response(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """``content`` as JSON."""
    return Response(status, json.dumps(content).encode(), headers or {})


class _TooLargeError(Exception):
    """The body is larger than ``BODY_LIMIT``."""


class Server:
    """Serves ``handler`` on ``host:port`` until :meth:`close`.

    A request that was read is handled to its end, also when its caller has hung up.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port in use (another than ``port`` when that is 0)."""
        self._server = await asyncio.start_server(self._accept, host, port, backlog=1024)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    async def close(self) -> None:
        """Stop listening and drop what is in flight, as a killed process would."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine always runs in a task
        self._connections.add(task)
        try:
            await self._serve(_Connection(reader, writer))
        except (OSError, asyncio.CancelledError):
            # The caller is gone, or the process is ending.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, connection: "_Connection") -> None:
        while True:
            try:
                request = await connection.receive()
            except _TooLargeError:
                response = error_response(413, "The body is larger than 1 MiB.")
            except h11.RemoteProtocolError as error:
                if connection.may_send:
                    await connection.send(error_response(400, f"Not HTTP/1.1: {error}."))
                return
            else:
                if request is None:
                    return
                answer = await self._answer(request)
                if answer is None:
                    return
                response = answer
            if not await connection.send(response):
                return

    async def _answer(self, request: Request) -> Response | None:
        try:
            response = await self._handler(request)
        except Exception:
            logger.exception("%s %s", request.method, request.path)
            return error_response(500, "The sandbox has a bug; its log tells more.")
        outcome = response.status if response else "no answer"
        key = request.headers.get("idempotency-key", "")
        logger.info("%s %s %s %s", request.method, request.path, outcome, key)
        return response


class _Connection:
    """One connection: HTTP/1.1 events on a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)

    @property
    def may_send(self) -> bool:
        return self._protocol.our_state in {h11.IDLE, h11.SEND_RESPONSE}

    async def receive(self) -> Request | None:
        """The next request, or ``None`` when the caller closed or fell silent."""
        try:
            async with asyncio.timeout(IDLE_TIMEOUT):
                head = await self._event()
            if not isinstance(head, h11.Request):
                return None
            async with asyncio.timeout(REQUEST_TIMEOUT):
                body = await self._body()
        except TimeoutError:
            return None
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return Request(head.method.decode("ascii"), path, query, headers, body)

    async def send(self, response: Response) -> bool:
        """Send ``response``; whether the connection can take another request."""
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(response.body)),
            **response.headers,
        }
        head = h11.Response(
            status_code=response.status,
            reason=HTTPStatus(response.status).phrase,
            headers=list(headers.items()),
        )
        events = (head, h11.Data(data=response.body), h11.EndOfMessage())
        self._writer.write(b"".join(self._protocol.send(event) or b"" for event in events))
        await self._writer.drain()
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return True

    async def _body(self) -> bytes:
        body = bytearray()
        size = 0
        while True:
            if self._protocol.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._protocol.send(go_on) or b"")
            event = await self._event()
            if isinstance(event, h11.Data):
                # What is too large is read all the same: a caller that is still sending
                # would not see the answer.
                size += len(event.data)
                if size <= BODY_LIMIT:
                    body += event.data
            elif size > BODY_LIMIT:
                raise _TooLargeError
            else:
                return bytes(body)

    async def _event(self) -> Any:
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._protocol.receive_data(await self._reader.read(_CHUNK))


def error_response(status: int, message: str, **more: str) -> Response:
    """An error in the shape that Stripe's libraries read; used for the whole sandbox."""
    kind = "api_error" if status >= 500 else "invalid_request_error"
    return json_response(status, {"error": {"type": kind, "message": message, **more}})
