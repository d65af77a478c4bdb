"""A server that gives exactly the answers a test hands it: what the sandbox never would."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Canned:
    """One answer. A body in pieces is sent piece by piece, and its end is the end of the
    connection."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    method: str
    target: str
    peer: tuple[str, int]
    headers: Message


class CannedServer:
    """Where it listens, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[Seen] = []


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up on an answer is what some tests are about.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def canned_server(answer: Canned | Callable[[Seen], Canned]) -> Iterator[CannedServer]:
    """Serve ``answer``, or what it returns for each request, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in one packet; in two, the second would wait for an ACK.
        wbufsize = -1

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            seen = Seen(self.command, self.path, self.client_address, self.headers)
            server.seen.append(seen)
            given = answer(seen) if callable(answer) else answer
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            pieces = [given.body] if isinstance(given.body, bytes) else given.body
            if isinstance(given.body, bytes):
                self.send_header("Content-Length", str(len(given.body)))
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            try:
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
            except OSError:
                self.close_connection = True

        do_POST = do_GET  # noqa: N815  # the name is http.server's

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    listener = _Listener(("127.0.0.1", 0), Handler)
    server = CannedServer(f"http://127.0.0.1:{listener.server_address[1]}")
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
