"""Stripe's rules for idempotency keys, as the sandbox keeps them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.waiting import wait_until
from tests.sandbox.process import SandboxProcess


def test_the_same_key_is_answered_with_the_stored_answer(sandbox: SandboxProcess) -> None:
    """A3: one charge, and the second answer says that it is a replay."""
    first = sandbox.pay("k")
    second = sandbox.pay("k")

    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Original-Request"] == first.headers["Request-Id"]
    assert second.json() == first.json()
    assert len(sandbox.charges()) == 1


def test_a_stored_answer_is_as_old_as_its_call(sandbox: SandboxProcess) -> None:
    """A3: a replayed success may have been refunded since."""
    paid = sandbox.pay("k", **{"expand[0]": "latest_charge"}).json()
    sandbox.post("/refunds", payment_intent=paid["id"])

    assert sandbox.pay("k", **{"expand[0]": "latest_charge"}).json() == paid
    assert [row["status"] for row in sandbox.charges()] == ["refunded"]


def test_a_decline_is_stored_too(sandbox: SandboxProcess) -> None:
    """A3."""
    method = "pm_card_chargeDeclined"
    first = sandbox.pay("k", payment_method=method)
    second = sandbox.pay("k", payment_method=method)

    assert (second.status_code, second.json()) == (402, first.json())
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(sandbox.charges()) == 1


def test_a_failure_is_stored_and_replayed_for_ever(sandbox: SandboxProcess) -> None:
    """A3: the key is consumed without a charge."""
    sandbox.faults(gateway={"mode": "error"})
    first = sandbox.pay("k")
    sandbox.faults()
    second = sandbox.pay("k")

    assert (first.status_code, "Idempotent-Replayed" in first.headers) == (500, False)
    assert (second.status_code, second.headers["Idempotent-Replayed"]) == (500, "true")
    assert sandbox.charges() == []
    assert sandbox.pay("k:2").status_code == 200


@pytest.mark.parametrize("form", [{"amount": "501"}, {"payment_method": "pm_card_amex"}])
def test_a_key_with_other_parameters_is_refused(
    sandbox: SandboxProcess, form: dict[str, str]
) -> None:
    """A4."""
    sandbox.pay("k")
    refused = sandbox.pay("k", **form)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "idempotency_error")
    assert len(sandbox.charges()) == 1


def test_a_key_used_for_another_endpoint_is_refused(sandbox: SandboxProcess) -> None:
    """A4."""
    paid = sandbox.pay("k").json()
    refused = sandbox.post("/refunds", "k", payment_intent=paid["id"])
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "idempotency_error")


def test_a_key_in_use_is_a_409_that_is_not_stored(sandbox: SandboxProcess) -> None:
    """A3: of two calls at once one waits for nothing and changes nothing."""
    sandbox.faults(gateway={"mode": "slow", "delay_s": 1, "count": 1})
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sandbox.pay, "k")
        wait_until(lambda: sandbox.http.get("/faults").json()["gateway"]["hits"] == 1)
        second = sandbox.pay("k")
        assert second.status_code == 409
        assert second.json()["error"]["code"] == "idempotency_key_in_use"
        assert first.result().status_code == 200
    assert sandbox.pay("k").headers["Idempotent-Replayed"] == "true"
    assert len(sandbox.charges()) == 1


def test_a_validation_failure_does_not_consume_the_key(sandbox: SandboxProcess) -> None:
    """A4."""
    assert sandbox.pay("k", currency="nonsense").status_code == 400
    assert sandbox.pay("k").status_code == 200


def test_a_call_without_a_key_of_the_client_does_not_touch_the_store(
    sandbox: SandboxProcess,
) -> None:
    """A6: without a key the same call is another charge."""
    sandbox.pay(None)
    sandbox.pay(None)
    assert [row["key"] for row in sandbox.charges()] == [None, None]


def test_a_key_may_have_255_characters_and_no_more(sandbox: SandboxProcess) -> None:
    """A2."""
    assert sandbox.pay("x" * 255).status_code == 200
    refused = sandbox.pay("x" * 256)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_the_order_of_parameters_does_not_matter(sandbox: SandboxProcess) -> None:
    """A6."""
    form = {"amount": "5", "currency": "eur", "confirm": "true", "payment_method": "pm_card_visa"}
    sandbox.post("/payment_intents", "k", **form)
    second = sandbox.post("/payment_intents", "k", **dict(reversed(form.items())))
    assert second.headers["Idempotent-Replayed"] == "true"


def test_a_forgotten_key_charges_again(sandbox: SandboxProcess) -> None:
    """A5: what happens to whoever trusts a key for ever."""
    sandbox.pay("k")
    sandbox.pay("other")

    assert sandbox.http.post("/gateway/forget", json={"key": "k"}).json() == {"forgotten": 1}

    assert "Idempotent-Replayed" not in sandbox.pay("k").headers
    assert "Idempotent-Replayed" in sandbox.pay("other").headers
    assert [row["key"] for row in sandbox.charges()] == ["k", "other", "k"]
    assert sandbox.http.post("/gateway/forget").json() == {"forgotten": 2}
