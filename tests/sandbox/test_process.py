"""The sandbox as a process: under load, killed, and talked to badly."""

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.lab.waiting import wait_until
from tests.sandbox.process import API_KEY, SandboxProcess

TREE = Path(__file__).resolve().parents[2]
_FORM = {"amount": "5", "currency": "eur", "confirm": "true", "payment_method": "pm_card_visa"}


def test_a_hundred_slow_calls_wait_beside_each_other(sandbox: SandboxProcess) -> None:
    """I1: a slow gateway is slow for each caller, not slower for the next."""
    sandbox.faults(gateway={"mode": "slow", "delay_s": 1})

    async def pay_all() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=sandbox.url, limits=limits, timeout=20) as client:

            async def pay(number: int) -> int:
                headers = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": f"k{number}"}
                url = "/gateway/v1/payment_intents"
                return (await client.post(url, data=_FORM, headers=headers)).status_code

            return await asyncio.gather(*(pay(number) for number in range(100)))

    started = time.monotonic()
    answers = asyncio.run(pay_all())
    took = time.monotonic() - started

    assert answers == [200] * 100
    assert took < 6, f"100 calls of 1 s each took {took:.1f} s"
    assert len({row["key"] for row in sandbox.charges()}) == 100


def test_it_answers_others_while_a_call_is_slow(sandbox: SandboxProcess) -> None:
    """I1."""
    sandbox.faults(supplier={"mode": "slow", "delay_s": 2})
    with socket.create_connection(("127.0.0.1", sandbox.http.base_url.port or 0)) as waiting:
        waiting.sendall(b"GET /supplier/users/1/items HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: sandbox.supplier_calls() == 1)
        started = time.monotonic()
        assert sandbox.pay("k").status_code == 200
        assert time.monotonic() - started < 1


def test_killed_and_started_again_it_knows_what_it_knew(sandbox: SandboxProcess) -> None:
    """I1: ledger, keys, snapshots and faults outlive ``kill -9``."""
    paid = sandbox.pay("k")
    sandbox.faults(supplier={"mode": "slow", "delay_s": 0.1})
    items = [{"sku": "sku-1", "quantity": 3}]
    sandbox.http.put("/supplier/users/5", json={"revision": 9, "items": items})
    sandbox.http.get("/supplier/users/5/items")
    faults = sandbox.http.get("/faults").json()

    sandbox.process.kill()
    sandbox.process.start()

    assert [row["key"] for row in sandbox.charges()] == ["k"]
    replayed = sandbox.pay("k")
    assert (replayed.headers["Idempotent-Replayed"], replayed.json()) == ("true", paid.json())
    assert sandbox.supplier_calls() == 1
    assert sandbox.http.get("/faults").json() == faults
    assert sandbox.http.get("/supplier/users/5/items").json()["revision"] == 9


def test_a_call_that_died_with_the_sandbox_has_not_used_its_key(sandbox: SandboxProcess) -> None:
    """I1: all or nothing, charge and stored answer in one."""
    sandbox.faults(gateway={"mode": "slow", "delay_s": 30, "count": 1})
    with socket.create_connection(("127.0.0.1", sandbox.http.base_url.port or 0)) as waiting:
        form = b"amount=5&currency=eur&confirm=true&payment_method=pm_card_visa"
        waiting.sendall(
            b"POST /gateway/v1/payment_intents HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
            b"Authorization: Bearer sk_test_x\r\nContent-Length: %d\r\n\r\n%s" % (len(form), form)
        )
        wait_until(lambda: sandbox.http.get("/faults").json()["gateway"]["hits"] == 1)
        sandbox.process.kill()
    sandbox.process.start()

    assert sandbox.charges() == []
    assert "Idempotent-Replayed" not in sandbox.pay("k").headers
    assert len(sandbox.charges()) == 1


def test_it_ends_at_once_when_asked_to(sandbox: SandboxProcess) -> None:
    """I1: also with a slow call and a resting connection."""
    sandbox.faults(supplier={"mode": "slow", "delay_s": 30})
    with socket.create_connection(("127.0.0.1", sandbox.http.base_url.port or 0)) as waiting:
        waiting.sendall(b"GET /supplier/users/1/items HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: sandbox.supplier_calls() == 1)
        assert sandbox.process.terminate(timeout=5) == 0
    sandbox.process.start()


def test_it_says_why_it_cannot_serve(sandbox: SandboxProcess, tmp_path: Path) -> None:
    """I1: a taken port or an unusable file is one line, not a traceback."""
    taken = str(sandbox.http.base_url.port)
    for options in (["--port", taken, "--db", str(tmp_path / "db")], ["--db", str(tmp_path)]):
        done = subprocess.run(
            [sys.executable, "-m", "deploy.sandbox", "--port", "0", *options],
            cwd=TREE,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("The sandbox cannot serve: ")


def test_it_survives_callers_that_do_not_speak_http(sandbox: SandboxProcess) -> None:
    """I1."""
    port = sandbox.http.base_url.port or 0
    for words in (b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00", b"POST / HTTP/1.1\r\nHost: x\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
            caller.sendall(words)
            caller.shutdown(socket.SHUT_WR)
            caller.recv(65536)
    too_large = sandbox.http.put("/faults", content=b"x" * (2 * 1024 * 1024))
    assert too_large.status_code == 413
    assert sandbox.http.get("/healthz").json() == {"status": "ok"}
