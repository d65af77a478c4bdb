"""What a network can do to a call, and what both clients make of it: try again later."""

import shlex
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from pytest_django import Settings

from inventory import supplier
from operations.dependencies import Dependency
from operations.dependencies.deadline import within
from operations.dependencies.http import BoundedClient
from operations.dependencies.retry_after import seconds_of
from purchases import gateway
from tests.lab.services import ValkeyServer
from tests.operations.dependencies import nameless
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


def _drip(start: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def treat(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(4096)
        connection.sendall(start)
        while not over.wait(0.1):
            connection.sendall(b"a")

    return treat


@both
@pytest.mark.parametrize(
    ("scheme", "start"),
    [
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\nX-Never: "),
        ("http", b""),
        ("https", b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03"),
    ],
    ids=["body", "chunk", "header", "status", "handshake"],
)
def test_an_answer_that_drips_is_given_up_in_time(
    ask: Callable[[str, Settings], Exception], settings: Settings, scheme: str, start: bytes
) -> None:
    """B5: no single read is slow; the time is for the whole, whatever it is busy with."""
    wire = Wire(_drip(start))
    started = time.monotonic()
    try:
        ask(f"{scheme}://{wire.address}", settings)
        # The gateway's time to connect comes on top of that for the answer.
        assert time.monotonic() - started < gateway.CONNECT_TIMEOUT + 0.5 + 1.5
    finally:
        wire.close()


def test_a_call_of_many_requests_ends_with_the_total_time_out(locks: ValkeyServer) -> None:
    """B5: whatever time-outs the client itself has, and however quick each request is."""
    patient = BoundedClient(timeout=None)
    dependency = Dependency("test-many-requests", connect_timeout=0.2, total_timeout=0.8)
    with canned_server(Canned(200, b"{}")) as server:
        started = time.monotonic()
        with pytest.raises(httpx.TimeoutException), dependency.call():
            while True:
                patient.of_this_process().get(server.url)
        assert 0.8 <= time.monotonic() - started < 2.5
        assert patient.of_this_process().get(server.url).status_code == 200


def test_a_name_of_several_addresses_is_tried_at_each() -> None:
    """B5: nothing listens at the first one, where localhost has two."""
    client = BoundedClient(timeout=None)
    with canned_server(Canned(200, b"{}")) as server, within(5):
        url = server.url.replace("127.0.0.1", "localhost")
        assert client.of_this_process().get(url).status_code == 200


def test_a_proxy_of_the_environment_is_used_and_bounded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B5: the look-up, then, is the proxy's."""
    wire = Wire(_drip(b""))
    monkeypatch.setenv("HTTP_PROXY", f"http://{wire.address}")
    monkeypatch.setenv("NO_PROXY", "")
    client = BoundedClient(timeout=None)
    started = time.monotonic()
    try:
        with pytest.raises(httpx.TimeoutException), within(0.5):
            client.of_this_process().get("http://no-such-host.invalid/")
    finally:
        wire.close()
    assert 0.5 <= time.monotonic() - started < 4


@both
def test_an_answer_without_end_is_given_up(
    ask: Callable[[str, Settings], Exception], settings: Settings
) -> None:
    """B5: before it has eaten the memory."""

    def flood(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
        while not over.is_set():
            connection.sendall(b" " * 1_000_000)

    wire = Wire(flood)
    try:
        assert "more than" in str(ask(f"http://{wire.address}", settings))
    finally:
        wire.close()


@both
def test_a_certificate_that_nobody_vouches_for_is_about_the_moment(
    ask: Callable[[str, Settings], Exception], settings: Settings, tmp_path: Path
) -> None:
    """B5: somebody else answers there, perhaps only now."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
        f"-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    )
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def speak(connection: socket.socket, _over: threading.Event) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(4096)
            answered.set()

    answered = threading.Event()
    wire = Wire(speak)
    try:
        assert "CERTIFICATE_VERIFY_FAILED" in str(ask(f"https://{wire.address}", settings))
    finally:
        wire.close()
    assert not answered.is_set(), "it was told what we want"


@pytest.mark.parametrize(
    ("who", "bound"), [("supplier", 1.0), ("gateway", gateway.CONNECT_TIMEOUT), ("system", None)]
)
def test_a_name_server_that_does_not_answer_is_given_up_in_time(
    who: str, bound: float | None
) -> None:
    """B5: a real one; the system itself would wait for a quarter of a minute."""
    asked = subprocess.run(
        [sys.executable, "-m", nameless.__name__, who, "5" if bound is None else "20"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if asked.returncode == nameless.CANNOT:
        pytest.skip(f"no private name server here: {asked.stdout}")
    assert asked.returncode == 0, asked.stderr
    took, was_asked, *raised = asked.stdout.split()
    assert was_asked == "True"
    if bound is None:
        assert took == "longer"
    else:
        assert raised == [f"{who.capitalize()}Unavailable"]
        assert bound - 0.1 < float(took) < bound + 4


@both
def test_a_name_that_is_not_found_is_about_the_moment(
    ask: Callable[[str, Settings], Exception], settings: Settings
) -> None:
    """B5"""
    ask("http://no-such-host.invalid", settings)


def retry_after(ask: Callable[[str, Settings], Exception], settings: Settings, value: str) -> float:
    """Seconds to wait, from a 429 with this header, as the operation is told."""
    with canned_server(Canned(429, b"slow down", headers={"Retry-After": value})) as server:
        error = ask(server.url, settings)
    assert isinstance(error, supplier.SupplierUnavailable | gateway.GatewayUnavailable)
    return error.retry_after


@both
def test_both_tell_how_long_they_are_asked_to_wait(
    ask: Callable[[str, Settings], Exception], settings: Settings
) -> None:
    """B6: in seconds or as a date, and bounded."""
    assert retry_after(ask, settings, "7") == 7
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < retry_after(ask, settings, date) <= 100
    assert retry_after(ask, settings, "99999999999") == 3600
    assert retry_after(ask, settings, "Sun, 06 Nov 2094 08:49:37 GMT") == 3600
    assert retry_after(ask, settings, "-1") == 0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("", 0),
        (" 12 ", 12),
        ("0", 0),
        ("1.5", 1.5),
        ("3600.1", 3600),
        ("soon", 0),
        ("-5", 0),
        ("+5", 0),
        ("1e3", 0),
        ("nan", 0),
        ("inf", 0),
        ("Infinity", 0),
        ("1_0", 0),
        ("٣", 0),
        ("9" * 20, 3600),
        ("9" * 5000, 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ("Fri, 31 Dec 9999 23:59:59 -2300", 3600),
        ("Fri, 31 Feb 2026 25:61:61 GMT", 0),
        ("Mon, 01 Jan 0001 00:00:00 +2300", 0),
        ("5, 10", 0),
    ],
)
def test_a_wait_that_is_asked_for_is_read_strictly_and_bounded(
    header: str | None, seconds: float
) -> None:
    """B6"""
    assert seconds_of(header) == seconds
