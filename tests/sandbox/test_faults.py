"""What can be made to go wrong, and how a test says so."""

import time
from typing import Any

import httpx
import pytest

from tests.lab.waiting import wait_until
from tests.sandbox.process import API_KEY, SandboxProcess

_FORM = {"amount": "5", "currency": "eur", "confirm": "true", "payment_method": "pm_card_visa"}


def test_drop_reply_acts_and_then_says_nothing(sandbox: SandboxProcess) -> None:
    """I1: the answer is lost after the charge; the same key finds it again."""
    sandbox.faults(gateway={"mode": "drop_reply", "count": 1})
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        sandbox.pay("k")

    assert [row["status"] for row in sandbox.charges()] == ["succeeded"]
    assert sandbox.pay("k").headers["Idempotent-Replayed"] == "true"
    assert len(sandbox.charges()) == 1


def test_slow_acts_although_the_caller_hung_up(sandbox: SandboxProcess) -> None:
    """I1: a call that timed out charges later."""
    sandbox.faults(gateway={"mode": "slow", "delay_s": 0.6})
    headers = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": "k"}
    url = f"{sandbox.url}/gateway/v1/payment_intents"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, data=_FORM, headers=headers, timeout=0.2)

    assert sandbox.charges() == []
    rows = wait_until(sandbox.charges, timeout=5)
    assert [row["key"] for row in rows] == ["k"]


def test_decline_refuses_any_card(sandbox: SandboxProcess) -> None:
    """I1."""
    sandbox.faults(gateway={"mode": "decline"})
    assert sandbox.pay("k").status_code == 402
    assert sandbox.pay("k").headers["Idempotent-Replayed"] == "true"
    assert [row["status"] for row in sandbox.charges()] == ["declined"]
    unconfirmed = sandbox.pay("k2", confirm="false")
    assert unconfirmed.status_code == 200


def test_a_gateway_fault_spares_reads_unless_told_otherwise(sandbox: SandboxProcess) -> None:
    """I1: a look-up works while charges fail, or fails as well."""
    sandbox.faults(gateway={"mode": "error"})
    assert sandbox.get("/payment_intents").status_code == 200
    sandbox.faults(gateway={"mode": "error", "reads": True})
    assert sandbox.get("/payment_intents").status_code == 500
    sandbox.faults(gateway={"mode": "drop_reply", "reads": True})
    with pytest.raises(httpx.RemoteProtocolError):
        sandbox.get("/payment_intents")


@pytest.mark.parametrize(
    ("mode", "status"), [("error", 500), ("decline", 403), ("slow", 200), ("ok", 200)]
)
def test_the_supplier_has_the_same_modes(sandbox: SandboxProcess, mode: str, status: int) -> None:
    """I1."""
    sandbox.faults(supplier={"mode": mode, "delay_s": 0.2})
    started = time.monotonic()
    assert sandbox.http.get("/supplier/users/1/items").status_code == status
    assert mode == "ok" or time.monotonic() - started >= 0.2
    assert sandbox.pay("k").status_code == 200


def test_the_supplier_drops_its_reply(sandbox: SandboxProcess) -> None:
    """I1."""
    sandbox.faults(supplier={"mode": "drop_reply"})
    with pytest.raises(httpx.RemoteProtocolError):
        sandbox.http.get("/supplier/users/1/items")
    assert sandbox.supplier_calls() == 1


def test_a_count_bounds_the_calls_that_are_hit(sandbox: SandboxProcess) -> None:
    """I1."""
    sandbox.faults(gateway={"mode": "error", "count": 2})
    answers = [sandbox.pay(f"k{number}").status_code for number in range(4)]
    assert answers == [500, 500, 200, 200]
    assert sandbox.http.get("/faults").json()["gateway"]["hits"] == 2


def test_a_ratio_hits_that_share_and_the_same_calls_each_time(sandbox: SandboxProcess) -> None:
    """I1: a run with random faults can be repeated."""

    def run(seed: int) -> list[int]:
        sandbox.faults(supplier={"mode": "error", "ratio": 0.3, "seed": seed})
        url = "/supplier/users/1/items"
        return [sandbox.http.get(url).status_code for _ in range(100)]

    first = run(1)
    assert 15 <= first.count(500) <= 45
    assert run(1) == first
    assert run(2) != first


def test_putting_faults_replaces_all_and_deleting_clears(sandbox: SandboxProcess) -> None:
    """I1."""
    sandbox.faults(gateway={"mode": "slow", "delay_s": 2}, supplier={"mode": "error"})
    sandbox.faults(supplier={"mode": "decline"})
    shown = sandbox.http.get("/faults").json()
    assert (shown["gateway"]["mode"], shown["supplier"]["mode"]) == ("ok", "decline")
    assert sandbox.http.delete("/faults").json()["supplier"]["mode"] == "ok"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "JSON object"),
        ({"bank": {}}, "bank"),
        ({"gateway": "slow"}, "gateway must be an object"),
        ({"gateway": {"mode": "broken"}}, "gateway.mode"),
        ({"gateway": {"mode": ["slow"]}}, "gateway.mode"),
        ({"gateway": {"delay": 1}}, "delay"),
        ({"gateway": {"delay_s": -1}}, "gateway.delay_s"),
        ({"gateway": {"delay_s": "1"}}, "gateway.delay_s"),
        ({"supplier": {"ratio": 1.01}}, "supplier.ratio"),
        ({"supplier": {"ratio": True}}, "supplier.ratio"),
        ({"supplier": {"count": 0}}, "supplier.count"),
        ({"supplier": {"reads": True}}, "reads"),
    ],
)
def test_bad_faults_are_a_400_that_changes_nothing(
    sandbox: SandboxProcess, body: Any, said: str
) -> None:
    """I1."""
    sandbox.faults(supplier={"mode": "error"})
    refused = sandbox.http.put("/faults", json=body)
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]
    assert sandbox.http.get("/faults").json()["supplier"]["mode"] == "error"


@pytest.mark.parametrize("body", [b"", b"{", b'{"gateway": {"delay_s": NaN}}', b"[" * 20_000])
def test_faults_that_are_not_json_are_a_400(sandbox: SandboxProcess, body: bytes) -> None:
    """I1."""
    refused = sandbox.http.put("/faults", content=body)
    assert refused.status_code == 400
    assert "JSON" in refused.json()["error"]["message"]
