"""Clients that send slowly, read slowly, or never hang up, hold nobody else up."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.lab.processes import Stack
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client, new_client, read_all

BODY_TIMEOUT = 3.0
SLOW = 60
JSON = "Content-Type: application/json"


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    """Of one process with two threads."""
    stack.env |= {"SEKALI_API_THREADS": "2", "SEKALI_BODY_TIMEOUT": str(BODY_TIMEOUT)}
    stack.start(workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        client.post()
        yield client


@contextlib.contextmanager
def connections(client: Client, count: int, *, window: int = 0) -> Iterator[list[socket.socket]]:
    """So many connections, with a small receive window if asked for."""
    with contextlib.ExitStack() as opened:
        made = []
        for _ in range(count):
            connection = socket.socket()
            if window:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            connection.settimeout(20)
            connection.connect((client.http.base_url.host, client.http.base_url.port or 80))
            made.append(opened.enter_context(connection))
        yield made


def others_are_served(client: Client) -> None:
    """Assert that none of ten requests waits until the time of a slow client is over."""
    for _ in range(10):
        started = time.monotonic()
        assert client.post().status_code == 202
        assert time.monotonic() - started < BODY_TIMEOUT


def test_half_sent_bodies_hold_nobody_up(client: Client) -> None:
    """A1: with a length, or in chunks that do not end."""
    for framing, begin in (
        ("Content-Length: 1000", b"{"),
        ("Transfer-Encoding: chunked", b"5\r\n{"),
    ):
        with connections(client, SLOW) as slow:
            for number, connection in enumerate(slow):
                head = client.head(f"Idempotency-Key: {number}", JSON, framing)
                connection.sendall(head + begin)
            others_are_served(client)


def test_half_sent_headers_hold_nobody_up(client: Client) -> None:
    """A1"""
    with connections(client, SLOW) as slow:
        for connection in slow:
            connection.sendall(client.head()[:-2])
        others_are_served(client)


def test_clients_that_never_hang_up_hold_nobody_up(client: Client) -> None:
    """A1: they have their answer, and were asked to close."""
    with connections(client, SLOW) as slow:
        for number, connection in enumerate(slow):
            head = client.head(f"Idempotency-Key: {number}", JSON, "Content-Length: 2")
            connection.sendall(head + b"{}")
        others_are_served(client)
        for connection in slow:
            assert connection.recv(65536).startswith(b"HTTP/1.1 202 ")
        others_are_served(client)


def test_clients_that_do_not_read_hold_nobody_up(client: Client) -> None:
    """A1: large answers to a tiny window, more of them than there are threads."""
    bundle = "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
    assert len(client.get(bundle).content) > 1_000_000
    with connections(client, 20, window=4096) as slow:
        for connection in slow:
            connection.sendall(client.head(path=bundle, method="GET"))
        others_are_served(client)
        assert slow[0].recv(100).startswith(b"HTTP/1.1 200 ")
        others_are_served(client)


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Status and type of the problem that comes before the end of the stream."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head
    return int(head.split()[1]), json.loads(body)["type"].removeprefix("urn:sekali:problem:")


def test_a_body_that_does_not_come_is_told_so_and_never_with_408(client: Client) -> None:
    """A1: browsers send a request again after 408."""
    with connections(client, 1) as (connection,):
        started = time.monotonic()
        connection.sendall(client.head("Idempotency-Key: k", JSON, "Content-Length: 9") + b"{")
        assert answer_of(connection) == (400, "incomplete_body")
        assert BODY_TIMEOUT - 0.5 < time.monotonic() - started < 3 * BODY_TIMEOUT


def test_a_body_that_trickles_has_no_more_time(client: Client) -> None:
    """A1: each byte would put the end off otherwise."""
    with connections(client, 1) as (connection,):
        connection.sendall(client.head("Idempotency-Key: k", JSON, "Content-Length: 999"))
        trickling = threading.Event()

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not trickling.wait(0.1):
                    connection.sendall(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        started = time.monotonic()
        received = b""
        while b"incomplete_body" not in received:
            chunk = connection.recv(65536)
            assert chunk, "the end of the stream came first"
            received += chunk
            assert received.startswith(b"HTTP/1.1 400 ")
        assert time.monotonic() - started < 3 * BODY_TIMEOUT
        wait_until(lambda: not thread.is_alive(), timeout=15)
        trickling.set()


def test_headers_that_do_not_end_and_silence_are_cut_off(client: Client) -> None:
    """A1"""
    with connections(client, 3) as (silent, begun, idle):
        begun.sendall(b"GET / HTTP/1.1\r\nHost: ")
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        first = b""
        while not first.endswith(b"}"):
            first += idle.recv(65536)
        idle.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert read_all(silent) == b""
        assert answer_of(begun) == (400, "malformed_request")
        assert answer_of(idle) == (400, "malformed_request")


def test_a_kept_connection_serves_many_requests(client: Client) -> None:
    """A1: also pipelined, in order."""
    with connections(client, 1) as (connection,):
        requests = b"".join(
            b"GET /nix%d HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: r%d\r\n%s\r\n"
            % (n, n, b"Connection: close\r\n" if n == 4 else b"")
            for n in range(5)
        )
        connection.sendall(requests)
        answers = read_all(connection)
    found = [answers.index(b"x-request-id: r%d\r\n" % n) for n in range(5)]
    assert found == sorted(found)
    assert answers.count(b"HTTP/1.1 404 ") == 5
