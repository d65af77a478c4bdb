"""A client of the API under test."""

import secrets
import socket
import time
from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from django.contrib.auth import get_user_model

from operations import tokens

SCRIPTED = "/api/v1/scripted"


class Client:
    """Sends requests for one user; kept connections, no retries."""

    def __init__(self, url: str, token: str, user: int) -> None:
        self.url = url
        self.token = token
        self.user = user
        self.http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def post(
        self,
        path: str = SCRIPTED,
        body: Any = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        content: bytes | str | None = None,
    ) -> httpx.Response:
        """POST JSON under a key, by default a new one."""
        sent = {"Idempotency-Key": secrets.token_hex(8) if key is None else key, **(headers or {})}
        if content is None:
            return self.http.post(path, json={} if body is None else body, headers=sent)
        sent.setdefault("Content-Type", "application/json")
        return self.http.post(path, content=content, headers=sent)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.http.get(path, headers=headers)

    def raw(self, request: bytes, *, timeout: float = 10) -> bytes:
        """Send bytes as they are; return all that comes until the server closes."""
        with self.connect(timeout) as connection:
            connection.sendall(request)
            return read_all(connection)

    def connect(self, timeout: float = 10) -> socket.socket:
        """A TCP connection to the API."""
        address = urlsplit(self.url)
        assert address.hostname
        assert address.port
        return socket.create_connection((address.hostname, address.port), timeout=timeout)

    def head(self, *lines: str, path: str = SCRIPTED, method: str = "POST") -> bytes:
        """The head of a request, with the token, that asks for the connection to be closed."""
        all_lines = [
            f"{method} {path} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self.token}",
            "Connection: close",
            *lines,
            "",
            "",
        ]
        return "\r\n".join(all_lines).encode("latin-1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


def new_client(url: str, username: str = "") -> Client:
    """A client of a user, made if need be; by default of a new one."""
    user, _ = get_user_model().objects.get_or_create(username=username or secrets.token_hex(6))
    return Client(url, tokens.issue(user, "test", timedelta(hours=1)), user.pk)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the end of the stream, or what there was before a reset."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def timed(response: httpx.Response) -> float:
    """Seconds from the request to the end of the answer."""
    return response.elapsed.total_seconds()


def sleep_until(deadline: float) -> None:
    time.sleep(max(0.0, deadline - time.monotonic()))
