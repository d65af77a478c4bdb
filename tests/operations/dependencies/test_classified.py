"""What a network can do to a call, and what both clients make of it: try again later."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pytest_django import Settings

from inventory import supplier
from purchases import gateway
from tests.sandbox.canned import Canned, canned_server


class Wire:
    """A server below HTTP: does the same to each connection."""

    def __init__(self, treat: Callable[[socket.socket, threading.Event], None]) -> None:
        self._treat = treat
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        self._listener.settimeout(0.05)
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._one, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._treat(connection, self._over)
            except OSError:
                return  # hung up on, as is right

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()


def _hang(connection: socket.socket, over: threading.Event) -> None:
    over.wait(10)


def _reset(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def _garbage(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(4096)
    connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")


def _half(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")


def _stall(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    over.wait(10)


FAULTS = {
    "hung socket": (_hang, "http"),
    "reset": (_reset, "http"),
    "garbage": (_garbage, "http"),
    "half an answer": (_half, "http"),
    "stalled in the body": (_stall, "http"),
    "TLS to who speaks none": (_garbage, "https"),
}


@pytest.fixture(params=list(FAULTS.values()), ids=list(FAULTS))
def faulty(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of something that does this to each connection."""
    treat, scheme = request.param
    wire = Wire(treat)
    try:
        yield f"{scheme}://{wire.address}"
    finally:
        wire.close()


def ask_gateway(url: str, settings: Settings) -> Exception:
    settings.STRIPE_API_KEY = "sk_test_sandbox"
    settings.STRIPE_API_BASE = url
    settings.STRIPE_TIMEOUT = 0.5
    with pytest.raises(gateway.GatewayUnavailable) as error:
        gateway.charge("k", "o", 100, "eur", "pm_card_visa")
    return error.value


def ask_supplier(url: str, settings: Settings) -> Exception:
    settings.SUPPLIER_URL = url
    settings.SUPPLIER_TIMEOUT = 0.5
    with pytest.raises(supplier.SupplierUnavailable) as error:
        supplier.fetch("1")
    return error.value


both = pytest.mark.parametrize("ask", [ask_gateway, ask_supplier])


@both
def test_what_breaks_below_http_is_about_the_moment_and_found_out_in_time(
    ask: Callable[[str, Settings], Exception], faulty: str, settings: Settings
) -> None:
    """B5 I1"""
    started = time.monotonic()
    ask(faulty, settings)
    assert time.monotonic() - started < 3


def _drip(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b" ")


@both
def test_an_answer_that_drips_is_given_up_in_time(
    ask: Callable[[str, Settings], Exception], settings: Settings
) -> None:
    """B5: no single read is slow; the time is for the whole."""
    wire = Wire(_drip)
    started = time.monotonic()
    try:
        ask(f"http://{wire.address}", settings)
    finally:
        wire.close()
    assert time.monotonic() - started < 5


@both
def test_a_name_that_is_not_found_is_about_the_moment(
    ask: Callable[[str, Settings], Exception], settings: Settings
) -> None:
    """B5"""
    ask("http://no-such-host.invalid", settings)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("soon", 0), (None, 0), ("999999999", 3600)]
)
def test_the_supplier_tells_how_long_to_wait(
    settings: Settings, header: str | None, seconds: float
) -> None:
    """B6: bounded."""
    headers = {} if header is None else {"Retry-After": header}
    with canned_server(Canned(429, headers=headers)) as server:
        error = ask_supplier(server.url, settings)
    assert isinstance(error, supplier.SupplierUnavailable)
    assert error.retry_after == seconds
