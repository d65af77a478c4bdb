"""The supplier's client, against the sandbox and against answers that no supplier should give."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pytest_django import Settings

from inventory import supplier
from tests.lab.services import Lab
from tests.lab.waiting import wait_until
from tests.sandbox.canned import Canned, Seen, canned_server
from tests.sandbox.process import SandboxProcess, sandbox_process

TREE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shared_sandbox(lab: Lab) -> Iterator[SandboxProcess]:
    """A running sandbox."""
    with sandbox_process(lab, "supplier-tests") as running:
        yield running


@pytest.fixture
def sandbox(shared_sandbox: SandboxProcess, settings: Settings) -> SandboxProcess:
    """The supplier that the client talks to, without faults."""
    settings.SUPPLIER_URL = shared_sandbox.supplier_url
    settings.SUPPLIER_TIMEOUT = 5
    shared_sandbox.reset()
    return shared_sandbox


def put(sandbox: SandboxProcess, user: str, revision: int, items: dict[str, int]) -> None:
    listed = [{"sku": sku, "quantity": quantity} for sku, quantity in items.items()]
    body = {"revision": revision, "items": listed}
    sandbox.http.put(f"/supplier/users/{quote(user, safe='')}", json=body).raise_for_status()


def page(revision: int = 1, following: Any = None, **items: Any) -> Canned:
    listed = [{"sku": sku, "quantity": quantity} for sku, quantity in items.items()]
    content = {"revision": revision, "items": listed, "next": following}
    return Canned(body=json.dumps(content).encode())


# --- What is told --------------------------------------------------------------------


def test_a_snapshot_is_fetched(sandbox: SandboxProcess) -> None:
    """G1."""
    assert supplier.fetch("9") == supplier.Snapshot(1, {"sku-1": 1, "sku-scarce": 1})
    put(sandbox, "9", 12, {"sku-1": 7})
    assert supplier.fetch("9") == supplier.Snapshot(12, {"sku-1": 7})
    put(sandbox, "9", 13, {})
    assert supplier.fetch("9") == supplier.Snapshot(13, {})


def test_all_pages_are_put_together(sandbox: SandboxProcess) -> None:
    """G1."""
    items = {f"sku-{number}": number for number in range(2 * supplier.PAGE_SIZE + 1)}
    put(sandbox, "2", 3, items)
    assert supplier.fetch("2") == supplier.Snapshot(3, items)
    assert sandbox.supplier_calls() == 3


def test_pages_of_two_revisions_are_never_put_together(settings: Settings) -> None:
    """G1, B10: the fetch starts again when the snapshot changed under it."""
    answers = [
        page(1, 2, a=1),
        page(2, None, b=2),
        page(2, 2, a=2),
        page(2, None, b=2),
    ]
    with canned_server(lambda _: answers.pop(0)) as server:
        settings.SUPPLIER_URL = server.url
        assert supplier.fetch("1") == supplier.Snapshot(2, {"a": 2, "b": 2})
    asked = [seen.target.partition("?")[2].partition("&")[0] for seen in server.seen]
    assert asked == ["page=1", "page=2", "page=1", "page=2"]


def test_a_snapshot_that_never_rests_is_given_up(settings: Settings) -> None:
    """G1, B10."""
    revisions = count()

    def restless(seen: Seen) -> Canned:
        return page(next(revisions), 2 if "page=1&" in seen.target else None)

    with canned_server(restless) as server:
        settings.SUPPLIER_URL = server.url
        with pytest.raises(supplier.SupplierUnavailable, match="changed during 4 fetches"):
            supplier.fetch("1")
    assert len(server.seen) == 8


def test_a_snapshot_replaced_all_the_time_is_never_mixed(sandbox: SandboxProcess) -> None:
    """G1, B10: each fetch is of one revision or none."""
    ended = threading.Event()
    skus = [f"sku-{number}" for number in range(supplier.PAGE_SIZE + 10)]

    def replace_again_and_again() -> None:
        for revision in count(1):
            put(sandbox, "3", revision, dict.fromkeys(skus, revision))
            if ended.wait(0.03):
                return

    put(sandbox, "3", 0, dict.fromkeys(skus, 0))
    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    fetched = 0
    try:
        for _ in range(40):
            try:
                snapshot = supplier.fetch("3")
            except supplier.SupplierUnavailable as error:
                assert "changed" in str(error)  # noqa: PT017  # a fetch may or may not succeed
                continue
            fetched += 1
            assert set(snapshot.items.values()) == {snapshot.revision}
    finally:
        ended.set()
        writer.join()
    assert fetched > 0


# --- Trouble -------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["a/../b?c=d#e", "zoë@example.org", "%2F"])
def test_any_user_name_names_one_user(sandbox: SandboxProcess, user: str) -> None:
    """G1: a name with a slash does not lead to somebody else's items."""
    put(sandbox, user, 21, {"sku-1": 3})
    assert supplier.fetch(user) == supplier.Snapshot(21, {"sku-1": 3})


def test_a_user_name_that_climbs_the_path_finds_nothing(sandbox: SandboxProcess) -> None:
    """G1."""
    for user in (".", ".."):
        with pytest.raises(supplier.SupplierRefused):
            supplier.fetch(user)


@pytest.mark.parametrize("mode", ["error", "drop_reply"])
def test_a_failing_supplier_is_unavailable(sandbox: SandboxProcess, mode: str) -> None:
    """B5."""
    sandbox.faults(supplier={"mode": mode, "count": 1})
    with pytest.raises(supplier.SupplierUnavailable):
        supplier.fetch("1")
    assert supplier.fetch("7").revision == 1


def test_a_supplier_that_declines_has_refused(sandbox: SandboxProcess) -> None:
    """B5: an answer, which another try would not change."""
    sandbox.faults(supplier={"mode": "decline"})
    with pytest.raises(supplier.SupplierRefused, match="403"):
        supplier.fetch("1")


@pytest.mark.parametrize("status", [401, 408, 429, 500, 503, 302, 204])
def test_other_statuses_are_about_the_moment(settings: Settings, status: int) -> None:
    """B5."""
    with canned_server(Canned(status, headers={"Location": "/"})) as server:
        settings.SUPPLIER_URL = server.url
        with pytest.raises(supplier.SupplierUnavailable, match=str(status)):
            supplier.fetch("1")
    assert len(server.seen) == 1


def test_a_slow_supplier_is_given_up_in_time(sandbox: SandboxProcess, settings: Settings) -> None:
    """B5."""
    settings.SUPPLIER_TIMEOUT = 0.4
    sandbox.faults(supplier={"mode": "slow", "delay_s": 3})
    started = time.monotonic()
    with pytest.raises(supplier.SupplierUnavailable):
        supplier.fetch("1")
    assert 0.4 <= time.monotonic() - started < 1.5


def test_the_time_is_for_all_pages_together(settings: Settings) -> None:
    """B5: each page is quick enough, their sum is not."""

    def unhurried(seen: Seen) -> Canned:
        time.sleep(0.2)
        return page(1, len(server.seen) + 1)

    settings.SUPPLIER_TIMEOUT = 0.5
    with canned_server(unhurried) as server:
        settings.SUPPLIER_URL = server.url
        started = time.monotonic()
        with pytest.raises(supplier.SupplierUnavailable):
            supplier.fetch("1")
    assert time.monotonic() - started < 1.5


def test_a_dripping_answer_is_given_up_in_time(settings: Settings) -> None:
    """B5: no single read is slow, the body never ends."""

    def drops() -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b" "

    settings.SUPPLIER_TIMEOUT = 0.5
    with canned_server(lambda _: Canned(body=drops())) as server:
        settings.SUPPLIER_URL = server.url
        started = time.monotonic()
        with pytest.raises(supplier.SupplierUnavailable, match="longer"):
            supplier.fetch("1")
        assert time.monotonic() - started < 1.5


def test_a_supplier_that_is_not_there_is_unavailable(lab: Lab, settings: Settings) -> None:
    """B5."""
    for url in (f"http://127.0.0.1:{lab.port()}", "", "http://"):
        settings.SUPPLIER_URL = url
        with pytest.raises(supplier.SupplierUnavailable, match="No answer"):
            supplier.fetch("1")


def item(**members: Any) -> Canned:
    return Canned(body=json.dumps({"revision": 1, "items": [members], "next": None}).encode())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Canned(body=b""), "not JSON"),
        (Canned(body=b"<html>"), "not JSON"),
        (Canned(body=b'{"revision": 1, "items": ['), "not JSON"),
        (Canned(body=b"\xff\xfe\x00"), "not JSON"),
        (Canned(body=b"[" * 100_000), "not JSON"),
        (Canned(body=b"[]"), "not a JSON object"),
        (Canned(body=b"{}"), "revision"),
        (Canned(body=b'{"revision": "1", "items": []}'), "revision"),
        (Canned(body=b'{"revision": true, "items": []}'), "revision"),
        (Canned(body=b'{"revision": 1.5, "items": []}'), "revision"),
        (Canned(body=b'{"revision": 1}'), "items is not a list"),
        (Canned(body=b'{"revision": 1, "items": {}}'), "items is not a list"),
        (Canned(body=b'{"revision": 1, "items": [1]}'), "not an object"),
        (item(quantity=1), "no proper sku"),
        (item(sku="", quantity=1), "no proper sku"),
        (item(sku="x" * 65, quantity=1), "no proper sku"),
        (item(sku="a\x00b", quantity=1), "no proper sku"),
        (item(sku="a", quantity=-1), "quantity of a"),
        (item(sku="a", quantity=2**31), "quantity of a"),
        (item(sku="a", quantity=1.0), "quantity of a"),
        (item(sku="a", quantity=None), "quantity of a"),
        (page(1, 1), "followed by page 1"),
        (page(1, 3), "followed by page 3"),
        (page(1, "2"), "followed by page '2'"),
        (Canned(body=b" " * (supplier.MAX_PAGE_BYTES + 1)), "more than 1048576 bytes"),
        (Canned(body=b"{}", headers={"Content-Encoding": "gzip"}), "revision"),
    ],
)
def test_an_unusable_answer_is_unavailable_and_says_why(
    settings: Settings, answer: Canned, said: str
) -> None:
    """B5: nothing malformed gets further than this module."""
    with canned_server(answer) as server:
        settings.SUPPLIER_URL = server.url
        with pytest.raises(supplier.SupplierUnavailable, match=said):
            supplier.fetch("1")


def test_a_sku_listed_twice_is_unusable(settings: Settings) -> None:
    """B5: also when the second time is on another page."""
    answers = [page(1, 2, a=1), page(1, None, a=2)]
    with canned_server(lambda _: answers.pop(0)) as server:
        settings.SUPPLIER_URL = server.url
        with pytest.raises(supplier.SupplierUnavailable, match="a is listed twice"):
            supplier.fetch("1")


def test_pages_without_end_are_given_up(settings: Settings) -> None:
    """B5."""
    numbers = count(2)
    with canned_server(lambda _: page(1, next(numbers))) as server:
        settings.SUPPLIER_URL = server.url
        settings.SUPPLIER_TIMEOUT = 30
        with pytest.raises(supplier.SupplierUnavailable, match="more than 200 pages"):
            supplier.fetch("1")
    assert len(server.seen) == supplier.MAX_PAGES


class OutOfTimeError(Exception):
    """What a time limit raises into the middle of whatever runs."""


def test_a_time_limit_passes_through_the_fetch(sandbox: SandboxProcess) -> None:
    """B3."""

    def ring(*_: object) -> None:
        raise OutOfTimeError

    sandbox.faults(supplier={"mode": "slow", "delay_s": 2})
    before = signal.signal(signal.SIGUSR1, ring)
    alarm = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    alarm.start()
    try:
        with pytest.raises(OutOfTimeError):
            supplier.fetch("1")
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, before)
    sandbox.faults()
    assert supplier.fetch("7").revision == 1


# --- Processes -----------------------------------------------------------------------


def test_one_connection_serves_fetch_after_fetch(settings: Settings) -> None:
    """B7."""
    with canned_server(page(1, None, a=1)) as server:
        settings.SUPPLIER_URL = server.url
        for _ in range(5):
            supplier.fetch("1")
    assert len({seen.peer for seen in server.seen}) == 1


def test_a_restarted_supplier_is_found_again(sandbox: SandboxProcess) -> None:
    """B5: a kept connection to a process that was killed does not stand in the way."""
    put(sandbox, "4", 5, {"sku-1": 2})
    assert supplier.fetch("4").revision == 5
    sandbox.process.kill()
    with pytest.raises(supplier.SupplierUnavailable):
        supplier.fetch("4")
    sandbox.process.start()
    assert wait_until(lambda: supplier.fetch("4")).revision == 5


_FORKING = """
import os, sys
from django.conf import settings
settings.configure(SUPPLIER_URL=sys.argv[1], SUPPLIER_TIMEOUT=10)
from inventory import supplier

supplier.fetch("1")
child = os.fork()
if child == 0:
    supplier.fetch("2")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
supplier.fetch("1")
"""


def test_a_forked_child_makes_its_own_connection(settings: Settings) -> None:
    """D1, B2: workers fork after the client may have been used."""
    with canned_server(page(1, None, a=1)) as server:
        done = subprocess.run(
            [sys.executable, "-c", _FORKING, server.url],
            cwd=TREE,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    parent, child, parent_again = server.seen
    assert child.peer != parent.peer
    assert parent_again.peer == parent.peer
