"""A TCP proxy that loses, delays or swallows what passes, on command."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

#: What a fault does to a chunk of bytes: given (connection, chunk), say whether to pass it on.
Fault = Callable[["_Link", bytes], bool]


class Proxy:
    """Between a client and the server at ``url``; the client is given ``proxy.url``.

    ``match`` in the methods below: only a request that holds these bytes, so that a
    handshake is not mistaken for the command. A request is assumed to come in one piece,
    which holds for short ones.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        credentials, at, _ = parts.netloc.rpartition("@")
        netloc = f"{credentials}{at}127.0.0.1:{self.port}"
        self.url = urlunsplit(parts._replace(netloc=netloc))
        self._guard = threading.Lock()
        self._links: list[_Link] = []
        self._once: list[tuple[bytes, Fault]] = []
        self._delay = 0.0
        self._silent = False
        self._closed = False
        #: Requests that reached the server, each as it was sent.
        self.requests: list[bytes] = []
        #: Requests that a black hole has taken.
        self.swallowed: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """New connections go to this server; those there are stay where they are."""
        parts = urlsplit(url)
        self._target = parts.hostname or "127.0.0.1", parts.port or 0

    def drop_request(self, match: bytes = b"") -> None:
        """The next request never reaches the server; the client hears nothing."""
        self._arm(match, lambda _link, _chunk: False)

    def drop_reply(self, match: bytes = b"") -> None:
        """The next request is carried out; the client hears nothing more on that connection."""
        self._arm(match, _Link.go_deaf)

    def keep_reply(self, match: bytes = b"") -> None:
        """The next request is carried out; its answer comes when the proxy is healed."""
        self._arm(match, _Link.keep)

    def reset_before(self, match: bytes = b"") -> None:
        """The next request never reaches the server; its connection is reset."""
        self._arm(match, _Link.reset_now)

    def reset_after(self, match: bytes = b"") -> None:
        """The next request is carried out; then, instead of an answer, a reset."""
        self._arm(match, _Link.reset_on_reply)

    def delay(self, seconds: float) -> None:
        """Every request from now on is passed on so much later."""
        self._delay = seconds

    def black_hole(self) -> None:
        """From now on nothing passes; connections stay open, new ones are accepted."""
        self._silent = True

    def reset_all(self) -> None:
        """Reset every connection there is."""
        with self._guard:
            links, self._links = self._links, []
        for link in links:
            link.reset()

    def heal(self) -> None:
        """No faults from now on. What a black hole swallowed does not come back."""
        with self._guard:
            self._once.clear()
            for link in self._links:
                link.passing.set()
        self._delay = 0.0
        if self._silent:
            self._silent = False
            self.reset_all()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.reset_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _arm(self, match: bytes, fault: Fault) -> None:
        with self._guard:
            self._once.append((match, fault))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            link = _Link(client, server)
            with self._guard:
                self._links.append(link)
            if self._closed:
                link.reset()
            for pump in (self._pump_requests, self._pump_replies):
                threading.Thread(target=pump, args=(link,), daemon=True).start()

    def _pump_requests(self, link: "_Link") -> None:
        for chunk in _chunks(link.client):
            if self._delay:
                time.sleep(self._delay)
            if self._silent:
                self.swallowed.append(chunk)
                continue
            fault = self._fault_for(chunk)
            if fault is None or fault(link, chunk):
                self.requests.append(chunk)
                if not _send(link.server, chunk):
                    break
        link.reset()

    def _pump_replies(self, link: "_Link") -> None:
        for chunk in _chunks(link.server):
            if link.resets_on_reply:
                break
            link.passing.wait()
            if link.deaf or self._silent:
                continue
            if not _send(link.client, chunk):
                break
        link.reset()

    def _fault_for(self, chunk: bytes) -> Fault | None:
        with self._guard:
            for armed in self._once:
                match, fault = armed
                if match in chunk:
                    self._once.remove(armed)
                    return fault
        return None


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.deaf = False
        self.passing = threading.Event()
        self.passing.set()
        self.resets_on_reply = False

    def go_deaf(self, _chunk: bytes) -> bool:
        self.deaf = True
        return True

    def keep(self, _chunk: bytes) -> bool:
        self.passing.clear()
        return True

    def reset_now(self, _chunk: bytes) -> bool:
        self.reset()
        return False

    def reset_on_reply(self, _chunk: bytes) -> bool:
        self.resets_on_reply = True
        return True

    def reset(self) -> None:
        self.passing.set()
        _reset(self.client)
        _reset(self.server)


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            chunk = source.recv(65536)
        except OSError:
            return
        if not chunk:
            return
        yield chunk


def _send(target: socket.socket, chunk: bytes) -> bool:
    try:
        target.sendall(chunk)
    except OSError:
        return False
    return True


def _reset(side: socket.socket) -> None:
    try:
        # With a linger of zero a close sends RST instead of FIN.
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread may sit in recv() on this socket; only a shutdown wakes it.
        side.shutdown(socket.SHUT_RD)
    except OSError:
        pass
    side.close()
