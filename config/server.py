"""uvicorn's HTTP protocol, with bounds for what comes before a request is complete.

For ``uvicorn --http config.server:Protocol``. The server itself has none for a client that
connects and says nothing, or never comes to the end of its headers; and what it cannot
parse it answers in plain text.
"""

import asyncio
import socket
from typing import Any

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from config.guard import plain

#: Bytes. The application has a lower limit, and says so with a better answer.
HEAD_LIMIT = 64 * 1024
#: A client that takes nothing of its answer for so long is cut off by the kernel, in ms.
READ_TIMEOUT_MS = 30_000


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, READ_TIMEOUT_MS)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        # The server's own timer ends with the first byte of the next request.
        if self._deadline is None and self._is_idle():
            self._expect_head()
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self._refuse(431, "headers_too_large", "The headers are too large.")

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_deadline()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed as HTTP."""
        self._refuse(400, "malformed_request", msg)

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _expect_head(self) -> None:
        # From silence to the end of the headers; the body has the same time once more.
        self._deadline = self.loop.call_later(settings.SEKALI_BODY_TIMEOUT, self._head_is_late)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(400, "malformed_request", "The headers did not arrive in time.")
        else:
            self.transport.close()

    def _refuse(self, status: int, name: str, detail: str) -> None:
        """Answer and close; but first the answer to an earlier, whole request goes out."""
        if self.transport.is_closing():
            return
        if self._answers_whole_request():
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        start, content = plain(status, name, detail)
        head = [b"%s: %s\r\n" % line for line in start["headers"]]
        head = [STATUS_LINE[status], *head, b"connection: close\r\n\r\n"]
        self.transport.write(b"".join([*head, content]))
        self.transport.close()

    def _answers_whole_request(self) -> bool:
        return not self._is_idle() and (self.cycle.response_started or not self.cycle.more_body)
