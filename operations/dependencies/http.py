"""An HTTP client that keeps to the deadline in whatever it does.

The time-outs of HTTP libraries are for each read, and the look-up of a name has none: with
servers that do not answer it takes as long as the system's resolver likes, half a minute and
more, and no signal ends it. Here the look-up, the connection to each address, the
handshake, and every read and write share the time that :func:`~.deadline.within` gives them.
"""

import atexit
import os
import queue
import socket
import threading
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from operations.dependencies import deadline

#: Seconds; no system call takes an infinite number.
_FOR_EVER = 1e6


class BoundedClient:
    """An :class:`httpx.Client` for each process, whose requests end with the deadline.

    Past it they raise :class:`httpx.TimeoutException`. Connections stay open, and are shared
    by the threads of a process. A forked child makes its own and leaves its parent's alone:
    two processes on one socket would read each other's answers.

    :param options: of :class:`httpx.Client`
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._lock = threading.Lock()
        #: The process that made the client, and the client.
        self._kept: tuple[int, httpx.Client] | None = None
        atexit.register(self._close)

    def of_this_process(self) -> httpx.Client:
        """The client; made when it is first asked for."""
        kept = self._kept
        if kept is not None and kept[0] == os.getpid():
            return kept[1]
        with self._lock:
            if self._kept is None or self._kept[0] != os.getpid():
                self._kept = os.getpid(), _made(self._options)
            return self._kept[1]

    def _close(self) -> None:
        if self._kept is not None and self._kept[0] == os.getpid():
            self._kept[1].close()


def _made(options: dict[str, Any]) -> httpx.Client:
    client = httpx.Client(**options)
    # With the transports that httpx has chosen, since they know the proxies of the
    # environment; it gives no other way to hand a network backend over.
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _Network()
    return client


class _Network(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        with deadline.within(_at_most(timeout, httpcore.ConnectTimeout)):
            addresses = _look_up(host, port)
            while True:
                address = addresses.pop(0)
                # Each gets its share, or one that swallows everything would take it all.
                wait = _at_most(None, httpcore.ConnectTimeout) / (1 + len(addresses))
                try:
                    stream = super().connect_tcp(address, port, wait, local_address, socket_options)
                except (httpcore.ConnectError, httpcore.ConnectTimeout):
                    if not addresses:
                        raise
                else:
                    return _Stream(stream)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _at_most(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _at_most(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        bounded = _at_most(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, bounded))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _at_most(timeout: float | None, late: type[Exception]) -> float:
    left = deadline.left()
    if left <= 0:
        raise late("The time for the whole call is over.")
    return min(left, _FOR_EVER if timeout is None else timeout)


def _look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, looked up by a thread of its own, which nobody waits for
    when it is late: it ends with the resolver's own time-outs."""
    answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answers.put(error)
        except UnicodeError as error:
            answers.put(OSError(f"{host!r} is no name of a host: {error}"))
        else:
            answers.put(list(dict.fromkeys(str(address[0]) for *_, address in found)))

    threading.Thread(target=ask, daemon=True, name=f"look-up of {host}").start()
    try:
        answer = answers.get(timeout=_at_most(None, httpcore.ConnectTimeout))
    except queue.Empty:
        raise httpcore.ConnectTimeout(f"No answer to who {host} is.") from None
    if isinstance(answer, OSError):
        raise httpcore.ConnectError(str(answer)) from answer
    return answer
