"""Something outside over HTTP that counts its calls, and fails, hangs or answers as told."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Outside:
    """Plays the supplier. ``mode`` is ``ok``, ``fail`` or ``hang``."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.calls: list[float] = []
        self._ending = threading.Event()
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outside.calls.append(time.monotonic())
                if outside.mode == "hang":
                    outside._ending.wait(60)
                body = json.dumps({"revision": 1, "items": [], "next": None}).encode()
                try:
                    self.send_response(503 if outside.mode == "fail" else 200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # the caller has hung up

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def per_second(self, since: float) -> list[int]:
        """Calls in each second since a monotonic time."""
        seconds = [int(call - since) for call in list(self.calls) if call >= since]
        return [seconds.count(n) for n in range(max(seconds, default=-1) + 1)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()
