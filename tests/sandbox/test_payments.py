"""Payment intents, refunds and the ledger behind them."""

import pytest

from tests.lab.waiting import wait_until
from tests.sandbox.process import SandboxProcess


def test_a_confirmed_payment_is_one_row_of_the_ledger(sandbox: SandboxProcess) -> None:
    """G2: a charge shows in the ledger with the key as given."""
    paid = sandbox.pay("op-1:1", amount="1250", **{"metadata[operation_id]": "op-1"})

    assert paid.status_code == 200
    assert paid.headers["Request-Id"].startswith("req_")
    intent = paid.json()
    assert (intent["status"], intent["amount"], intent["currency"]) == ("succeeded", 1250, "eur")
    assert intent["metadata"] == {"operation_id": "op-1"}
    charge = sandbox.get(f"/charges/{intent['latest_charge']}").json()
    assert (charge["paid"], charge["refunded"], charge["amount"]) == (True, False, 1250)
    assert sandbox.charges() == [
        {"key": "op-1:1", "amount": 1250, "currency": "eur", "status": "succeeded"}
    ]


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
    ],
)
def test_a_declined_card_is_a_402_and_a_declined_row(
    sandbox: SandboxProcess, method: str, code: str, decline_code: str | None
) -> None:
    """G2: a decline is told as Stripe tells it."""
    declined = sandbox.pay("k", payment_method=method)

    assert declined.status_code == 402
    error = declined.json()["error"]
    assert (error["type"], error["code"]) == ("card_error", code)
    assert error.get("decline_code") == decline_code
    assert error["payment_intent"]["status"] == "requires_payment_method"
    assert [row["status"] for row in sandbox.charges()] == ["declined"]


def test_an_unknown_payment_method_is_a_400_without_a_row(sandbox: SandboxProcess) -> None:
    """G2."""
    refused = sandbox.pay("k", payment_method="pm_nobody")

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "resource_missing")
    assert refused.json()["error"]["param"] == "payment_method"
    assert sandbox.charges() == []


def test_an_unconfirmed_intent_charges_nothing_until_it_is_confirmed(
    sandbox: SandboxProcess,
) -> None:
    """G2."""
    made = sandbox.pay("k", confirm="false").json()
    assert (made["status"], sandbox.charges()) == ("requires_confirmation", [])

    confirmed = sandbox.post(f"/payment_intents/{made['id']}/confirm", "k:confirm").json()

    assert confirmed["status"] == "succeeded"
    assert [row["key"] for row in sandbox.charges()] == ["k:confirm"]


def test_a_cancelled_intent_can_never_be_confirmed(sandbox: SandboxProcess) -> None:
    """G2."""
    made = sandbox.pay("k", confirm="false").json()
    path = f"/payment_intents/{made['id']}"

    assert sandbox.post(f"{path}/cancel").json()["status"] == "canceled"

    refused = sandbox.post(f"{path}/confirm")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "payment_intent_unexpected_state"
    assert refused.json()["error"]["payment_intent"]["status"] == "canceled"
    assert sandbox.charges() == []


def test_a_succeeded_intent_cannot_be_cancelled(sandbox: SandboxProcess) -> None:
    """G2."""
    paid = sandbox.pay("k").json()

    refused = sandbox.post(f"/payment_intents/{paid['id']}/cancel")

    assert refused.json()["error"]["code"] == "payment_intent_unexpected_state"
    assert [row["status"] for row in sandbox.charges()] == ["succeeded"]


@pytest.mark.parametrize(
    ("method", "status"),
    [
        ("pm_card_authenticationRequired", "requires_action"),
        ("pm_usBankAccount_processing", "processing"),
    ],
)
def test_a_payment_that_is_not_through_has_no_row(
    sandbox: SandboxProcess, method: str, status: str
) -> None:
    """G2."""
    assert sandbox.pay("k", payment_method=method).json()["status"] == status
    assert sandbox.charges() == []


def test_a_refund_changes_the_row_of_its_charge(sandbox: SandboxProcess) -> None:
    """G2."""
    paid = sandbox.pay("k", amount="700").json()
    part = sandbox.post("/refunds", payment_intent=paid["id"], amount="200")
    assert (part.json()["status"], part.json()["amount"]) == ("succeeded", 200)
    assert [row["status"] for row in sandbox.charges()] == ["succeeded"]

    rest = sandbox.post("/refunds", charge=paid["latest_charge"])

    assert rest.json()["amount"] == 500
    assert sandbox.charges() == [
        {"key": "k", "amount": 700, "currency": "eur", "status": "refunded"}
    ]
    listed = sandbox.get("/refunds", payment_intent=paid["id"]).json()["data"]
    assert [refund["id"] for refund in listed] == [rest.json()["id"], part.json()["id"]]
    again = sandbox.post("/refunds", payment_intent=paid["id"])
    assert (again.status_code, again.json()["error"]["code"]) == (400, "charge_already_refunded")
    shown = sandbox.get(f"/payment_intents/{paid['id']}", **{"expand[]": "latest_charge"}).json()
    assert shown["latest_charge"]["refunded"] is True


def test_the_list_is_whole_and_newest_first_over_its_pages(sandbox: SandboxProcess) -> None:
    """G2: a look-up by creation time misses nothing."""
    made = [sandbox.pay(None, amount=str(100 + number)).json() for number in range(7)]

    listed: list[str] = []
    after: dict[str, str] = {}
    pages = 0
    while True:
        since = {"created[gte]": str(made[0]["created"])}
        page = sandbox.get("/payment_intents", limit="3", **since, **after).json()
        listed += [intent["id"] for intent in page["data"]]
        pages += 1
        if not page["has_more"]:
            break
        after = {"starting_after": page["data"][-1]["id"]}

    assert listed == [intent["id"] for intent in reversed(made)]
    assert pages == 3
    later = {"created[gt]": str(made[-1]["created"] + 1)}
    assert sandbox.get("/payment_intents", **later).json()["data"] == []


def test_the_search_lags_behind_the_list(sandbox: SandboxProcess) -> None:
    """G2: whoever decides by a search decides too early."""
    sandbox.pay("k", **{"metadata[operation_id]": "op-lag"})
    query = "metadata['operation_id']:'op-lag'"

    def found() -> list[object]:
        answer = sandbox.get("/payment_intents/search", query=query)
        data: list[object] = answer.json()["data"]
        return data

    assert found() == []
    assert len(sandbox.get("/payment_intents").json()["data"]) == 1
    assert len(wait_until(found, timeout=5)) == 1


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"amount": ""}, "amount"),
        ({"amount": "0"}, "amount"),
        ({"amount": "1.5"}, "amount"),
        ({"currency": "euro"}, "currency"),
        ({"confirm": "yes"}, "confirm"),
        ({"surprise": "1"}, "surprise"),
        ({"expand[0]": "customer"}, "expand"),
    ],
)
def test_a_bad_parameter_is_named(
    sandbox: SandboxProcess, form: dict[str, str], param: str
) -> None:
    """G2: what Stripe would refuse is refused here too."""
    refused = sandbox.pay("k", **form)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Token sk_test_x"}, {"Authorization": "Basic =="}]
)
def test_a_call_without_an_api_key_is_a_401(
    sandbox: SandboxProcess, header: dict[str, str]
) -> None:
    """G2."""
    answer = sandbox.http.get("/gateway/v1/payment_intents", headers=header)
    assert answer.status_code == 401


def test_the_api_key_may_be_a_basic_user_name_but_never_a_live_one(
    sandbox: SandboxProcess,
) -> None:
    """G2."""
    path = "/gateway/v1/payment_intents"
    assert sandbox.http.get(path, auth=("sk_test_x", "")).status_code == 200
    assert sandbox.http.get(path, auth=("sk_live_x", "")).status_code == 401


def test_unknown_paths_and_methods_are_answered_in_json(sandbox: SandboxProcess) -> None:
    """I1: the sandbox speaks JSON also where it knows nothing."""
    unknown = sandbox.http.get("/nowhere")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "invalid_request_error")
    wrong = sandbox.http.put("/ledger")
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, DELETE")
    assert sandbox.get("/payment_intents/pi_nobody").status_code == 404
