"""The gateway's client, against the sandbox and against answers that no gateway should give."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from purchases import gateway
from tests.lab.services import Lab
from tests.lab.waiting import wait_until
from tests.sandbox.canned import Canned, canned_server
from tests.sandbox.process import API_KEY, SandboxProcess, sandbox_process

OPERATION = "0190a2c4-0000-7000-8000-000000000001"
KEY = f"{OPERATION}:1"
TREE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shared_sandbox(lab: Lab) -> Iterator[SandboxProcess]:
    """A running sandbox."""
    with sandbox_process(lab, "gateway-tests") as running:
        yield running


@pytest.fixture
def sandbox(shared_sandbox: SandboxProcess, settings: Settings) -> SandboxProcess:
    """The gateway that the client talks to, without faults and payments."""
    settings.STRIPE_API_KEY = API_KEY
    settings.STRIPE_API_BASE = shared_sandbox.gateway_url
    shared_sandbox.reset()
    return shared_sandbox


def charge(
    key: str = KEY, amount: int = 1250, payment_method: str = "pm_card_visa"
) -> gateway.Charge:
    return gateway.charge(key, OPERATION, amount, "eur", payment_method)


def burn(key: str = KEY) -> str:
    return gateway.burn(key, OPERATION, 1250, "eur")


def a_minute_ago() -> datetime:
    return datetime.now(UTC) - timedelta(minutes=1)


def statuses(sandbox: SandboxProcess) -> list[str]:
    return [row["status"] for row in sandbox.charges()]


# --- Charging ------------------------------------------------------------------------


def test_a_charge_is_made_under_its_key(sandbox: SandboxProcess) -> None:
    """G2."""
    made = charge()

    assert made == gateway.Charge(
        id=made.id,
        key=KEY,
        status="succeeded",
        amount=1250,
        amount_refunded=0,
        currency="eur",
        replayed=False,
        decline_code=None,
    )
    assert gateway.retrieve(made.id) == made
    assert sandbox.charges() == [
        {"key": KEY, "amount": 1250, "currency": "eur", "status": "succeeded"}
    ]


def test_the_same_key_again_is_the_same_charge(sandbox: SandboxProcess) -> None:
    """G2, F2."""
    first, second = charge(), charge()
    assert (second.id, second.replayed, second.status) == (first.id, True, "succeeded")
    assert len(sandbox.charges()) == 1


def test_a_replayed_success_has_the_status_of_now(sandbox: SandboxProcess) -> None:
    """G2: the stored answer says succeeded, but the money went back since."""
    made = charge()
    sandbox.post("/refunds", payment_intent=made.id, amount="250")
    part = charge()
    assert (part.status, part.amount_refunded) == ("succeeded", 250)
    sandbox.post("/refunds", payment_intent=made.id)

    again = charge()

    assert (again.status, again.replayed, again.amount_refunded) == ("refunded", True, 1250)


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("pm_card_chargeDeclined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card"),
    ],
)
def test_a_declined_card_is_declined_each_time(
    sandbox: SandboxProcess, method: str, code: str
) -> None:
    """G2, B5: a business answer, told apart from trouble on the way."""
    for _ in range(2):
        with pytest.raises(gateway.Declined) as declined:
            charge(payment_method=method)
        assert declined.value.code == code
    assert statuses(sandbox) == ["declined"]
    assert declined.value.payment_intent is not None
    intent = gateway.retrieve(declined.value.payment_intent)
    assert (intent.status, intent.decline_code) == ("declined", code)


def test_a_decline_by_fault_is_a_decline(sandbox: SandboxProcess) -> None:
    """G2, B5."""
    sandbox.faults(gateway={"mode": "decline"})
    with pytest.raises(gateway.Declined):
        charge()


def test_an_unknown_payment_method_is_rejected(sandbox: SandboxProcess) -> None:
    """G2, B5."""
    with pytest.raises(gateway.Rejected) as rejected:
        charge(payment_method="pm_nobody")
    assert rejected.value.code == "resource_missing"
    assert "pm_nobody" in rejected.value.detail
    assert sandbox.charges() == []


def test_another_amount_under_the_same_key_is_a_mismatch(sandbox: SandboxProcess) -> None:
    """G2, A4."""
    charge()
    with pytest.raises(gateway.KeyMismatch):
        charge(amount=1251)
    assert len(sandbox.charges()) == 1


@pytest.mark.parametrize(
    ("method", "status"),
    [
        ("pm_card_authenticationRequired", "requires_action"),
        ("pm_usBankAccount_processing", "processing"),
    ],
)
def test_a_charge_that_is_not_through_says_so_and_can_be_cancelled(
    sandbox: SandboxProcess, method: str, status: str
) -> None:
    """G2."""
    made = charge(payment_method=method)
    assert made.status == status
    assert gateway.cancel(made.id).status == "cancelled"
    assert gateway.cancel(made.id).status == "cancelled"
    assert charge(payment_method=method).status == "cancelled"
    assert sandbox.charges() == []


def test_cancelling_what_succeeded_tells_that_it_did(sandbox: SandboxProcess) -> None:
    """G2."""
    made = charge()
    assert gateway.cancel(made.id).status == "succeeded"


def test_what_does_not_exist_is_rejected(sandbox: SandboxProcess) -> None:
    """G2."""
    for call in (gateway.retrieve, gateway.cancel):
        with pytest.raises(gateway.Rejected) as rejected:
            call("pi_nobody")
        assert rejected.value.code == "resource_missing"


# --- Trouble -------------------------------------------------------------------------


def test_a_lost_answer_is_found_under_the_same_key(sandbox: SandboxProcess) -> None:
    """G2: gateway's answer lost after the charge; never charged twice."""
    sandbox.faults(gateway={"mode": "drop_reply"})
    with pytest.raises(gateway.GatewayUnavailable):
        charge()
    found = gateway.find(OPERATION, a_minute_ago())
    assert [(each.key, each.status) for each in found] == [(KEY, "succeeded")]
    sandbox.faults()

    again = charge()

    assert (again.id, again.replayed) == (found[0].id, True)
    assert len(sandbox.charges()) == 1


def test_a_failure_is_first_unavailable_and_then_a_consumed_key(sandbox: SandboxProcess) -> None:
    """G2: only the replay of a stored failure proves that the key is of no more use."""
    sandbox.faults(gateway={"mode": "error"})
    with pytest.raises(gateway.GatewayUnavailable):
        charge()
    sandbox.faults()
    with pytest.raises(gateway.KeyConsumed):
        charge()
    assert gateway.find(OPERATION, a_minute_ago()) == []

    assert charge(f"{OPERATION}:2").status == "succeeded"
    assert [row["key"] for row in sandbox.charges()] == [f"{OPERATION}:2"]


def test_a_call_out_of_time_is_unavailable_while_its_key_is_in_use(
    sandbox: SandboxProcess, settings: Settings
) -> None:
    """G2: the gateway still acts after the caller hung up."""
    settings.STRIPE_TIMEOUT = 0.3
    sandbox.faults(gateway={"mode": "slow", "delay_s": 1.5})
    started = time.monotonic()
    with pytest.raises(gateway.GatewayUnavailable):
        charge()
    assert time.monotonic() - started < 1
    with pytest.raises(gateway.KeyInUse):
        charge()
    with pytest.raises(gateway.KeyInUse):
        burn()
    assert gateway.find(OPERATION, a_minute_ago()) == []

    found = wait_until(lambda: gateway.find(OPERATION, a_minute_ago()), timeout=5)

    assert [each.status for each in found] == ["succeeded"]
    sandbox.faults()
    assert charge().id == found[0].id
    assert len(sandbox.charges()) == 1


def test_a_forgotten_key_would_charge_again_so_look_first(sandbox: SandboxProcess) -> None:
    """G2: what the look-up before a new charge is for."""
    first = charge()
    sandbox.http.post("/gateway/forget", json={"key": KEY})
    assert [each.id for each in gateway.find(OPERATION, a_minute_ago())] == [first.id]
    assert charge().replayed is False
    assert len(sandbox.charges()) == 2


def test_a_gateway_that_is_not_there_is_unavailable(
    lab: Lab, sandbox: SandboxProcess, settings: Settings
) -> None:
    """B5."""
    settings.STRIPE_API_BASE = f"http://127.0.0.1:{lab.port()}"
    with pytest.raises(gateway.GatewayUnavailable, match="No answer"):
        charge()


def test_without_an_api_key_nothing_is_sent(sandbox: SandboxProcess, settings: Settings) -> None:
    """B5."""
    settings.STRIPE_API_KEY = ""
    with pytest.raises(gateway.GatewayUnavailable, match="STRIPE_API_KEY"):
        charge()
    settings.STRIPE_API_KEY = "sk_live_wrong_place"
    with pytest.raises(gateway.GatewayUnavailable, match="401"):
        charge()


def error(code: str, kind: str = "invalid_request_error") -> bytes:
    return f'{{"error": {{"type": "{kind}", "code": "{code}", "message": "m"}}}}'.encode()


@pytest.mark.parametrize(
    "answer",
    [
        Canned(403, error("not_allowed")),
        Canned(429, error("rate_limit")),
        Canned(400, error("rate_limit")),
        Canned(503, error("down", "api_error")),
        Canned(502, b"<html>Bad gateway</html>"),
        Canned(502, b'{"error": "bad gateway"}'),
        Canned(502, b'{"error": ["bad gateway"]}'),
        Canned(502, b'{"message": "bad gateway"}'),
        Canned(500, b"<html>", {"Idempotent-Replayed": "true"}),
        Canned(404, b"<html>No such page</html>"),
        Canned(402, b'{"error": "pay for your proxy"}'),
        Canned(200, b"<html>Welcome to the hotel's network</html>"),
        Canned(200, b"{}"),
        Canned(200, b"[]"),
        Canned(200, b"null"),
        Canned(200, b'{"id": "pi_1", "object": "payment_intent", "status": "newly_invented"}'),
        Canned(200, b""),
        Canned(204, b""),
        Canned(200, b"{}", {"Content-Encoding": "gzip"}),
        Canned(302, b"", {"Location": "/elsewhere"}),
    ],
    ids=lambda answer: f"{answer.status} {bytes(answer.body)[:24]!r}",
)
@pytest.mark.parametrize(
    "call",
    [
        charge,
        burn,
        lambda: gateway.find(OPERATION, a_minute_ago()),
        lambda: gateway.refund("k", "pi_1"),
        lambda: gateway.retrieve("pi_1"),
    ],
    ids=["charge", "burn", "find", "refund", "retrieve"],
)
def test_an_answer_that_is_none_is_unavailable(
    settings: Settings, answer: Canned, call: Callable[[], object]
) -> None:
    """B5: proxies, outages and bad bodies are never taken for a business answer."""
    settings.STRIPE_API_KEY = API_KEY
    with canned_server(answer) as server:
        settings.STRIPE_API_BASE = server.url
        with pytest.raises(gateway.GatewayUnavailable):
            call()


def test_each_call_is_sent_once(settings: Settings) -> None:
    """B6: the library's own retries are off; retrying is the operation's business."""
    settings.STRIPE_API_KEY = API_KEY
    for status in (409, 429, 500, 503):
        retry = {"Stripe-Should-Retry": "true"}
        with canned_server(Canned(status, error("x", "api_error"), retry)) as server:
            settings.STRIPE_API_BASE = server.url
            with pytest.raises((gateway.GatewayUnavailable, gateway.KeyInUse)):
                charge()
            assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("soon", 0), ("9e9", 0), (None, 0)]
)
def test_a_rate_limit_tells_how_long_to_wait(
    settings: Settings, header: str | None, seconds: float
) -> None:
    """B6."""
    settings.STRIPE_API_KEY = API_KEY
    headers = {} if header is None else {"Retry-After": header}
    with canned_server(Canned(429, error("rate_limit"), headers)) as server:
        settings.STRIPE_API_BASE = server.url
        with pytest.raises(gateway.GatewayUnavailable) as unavailable:
            charge()
    assert unavailable.value.retry_after == seconds


def test_a_password_file_does_not_take_the_api_keys_place(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2: some HTTP clients prefer a .netrc entry to the header that the library sets."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    settings.STRIPE_API_KEY = "sk_test_of_this_test"
    with canned_server(Canned(500, error("x", "api_error"))) as server:
        settings.STRIPE_API_BASE = server.url
        with pytest.raises(gateway.GatewayUnavailable):
            charge()
    assert server.seen[0].headers["Authorization"] == "Bearer sk_test_of_this_test"


class OutOfTimeError(Exception):
    """What a time limit raises into the middle of whatever runs."""


def test_a_time_limit_passes_through_the_call(sandbox: SandboxProcess) -> None:
    """B3: the library takes any exception for a network error; this one must get out."""

    def ring(*_: object) -> None:
        raise OutOfTimeError

    sandbox.faults(gateway={"mode": "slow", "delay_s": 1})
    before = signal.signal(signal.SIGUSR1, ring)
    alarm = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    alarm.start()
    try:
        with pytest.raises(OutOfTimeError):
            charge()
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, before)
    sandbox.faults()
    wait_until(sandbox.charges, timeout=5)
    assert charge().replayed is True


# --- Finding -------------------------------------------------------------------------


def test_find_sees_every_page_and_only_its_operation(sandbox: SandboxProcess) -> None:
    """G2: a charge behind 210 others is found."""
    mine = [charge(f"{OPERATION}:1")]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: sandbox.pay(f"other:{number}"), range(210)))
    with pytest.raises(gateway.Declined):
        charge(f"{OPERATION}:2", payment_method="pm_card_chargeDeclined")

    found = gateway.find(OPERATION, a_minute_ago())

    assert [(each.key, each.status) for each in found] == [
        (f"{OPERATION}:2", "declined"),
        (f"{OPERATION}:1", "succeeded"),
    ]
    assert found[1] == mine[0]
    assert gateway.find("another operation", a_minute_ago()) == []
    listed, after, pages = [], "", 0
    while pages == 0 or after:
        page = gateway.listed(a_minute_ago(), datetime.now(UTC) + timedelta(minutes=1), after)
        listed += [(of, each.id) for of, each in page.payments]
        after, pages = page.after, pages + 1
    assert pages == 3
    assert len(listed) == len(set(listed)) == 212
    assert [id for of, id in listed if of == OPERATION] == [each.id for each in found]


def test_find_keeps_to_its_window(sandbox: SandboxProcess) -> None:
    """G2."""
    charge()
    now = datetime.now(UTC)
    beyond = timedelta(seconds=gateway.CLOCK_MARGIN + 60)
    assert gateway.find(OPERATION, now + beyond) == []
    assert gateway.find(OPERATION, now - 2 * beyond, now - beyond) == []
    assert len(gateway.find(OPERATION, now + timedelta(seconds=60))) == 1
    assert len(gateway.find(OPERATION, now - beyond, now)) == 1


def test_find_never_answers_with_a_part(
    sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2: a look-up that gave up half-way must not read as "no charge"."""
    for number in range(3):
        sandbox.pay(f"other:{number}")
    monkeypatch.setattr(gateway, "FIND_LIMIT", 2)
    with pytest.raises(gateway.GatewayUnavailable):
        gateway.find(OPERATION, a_minute_ago())
    sandbox.faults(gateway={"mode": "error", "reads": True})
    with pytest.raises(gateway.GatewayUnavailable):
        gateway.find(OPERATION, a_minute_ago())


# --- Giving back and burning ---------------------------------------------------------


def test_a_refund_is_made_once(sandbox: SandboxProcess) -> None:
    """G2: compensation may be repeated, under the same key or another."""
    made = charge()

    first = gateway.refund(f"{OPERATION}:refund:1", made.id)
    assert (first.status, first.amount, first.replayed) == ("succeeded", 1250, False)
    assert first.payment_intent == made.id

    for key in (f"{OPERATION}:refund:1", f"{OPERATION}:refund:2"):
        again = gateway.refund(key, made.id)
        assert (again.id, again.replayed) == (first.id, True)
    assert statuses(sandbox) == ["refunded"]
    assert gateway.retrieve(made.id).status == "refunded"


def test_a_failed_refund_is_tried_under_the_next_key(sandbox: SandboxProcess) -> None:
    """G2."""
    made = charge()
    sandbox.faults(gateway={"mode": "error", "count": 1})
    with pytest.raises(gateway.GatewayUnavailable):
        gateway.refund("r:1", made.id)
    with pytest.raises(gateway.KeyConsumed):
        gateway.refund("r:1", made.id)
    assert gateway.refund("r:2", made.id).replayed is False
    assert statuses(sandbox) == ["refunded"]


def test_what_was_not_charged_cannot_be_refunded(sandbox: SandboxProcess) -> None:
    """G2."""
    made = charge(payment_method="pm_usBankAccount_processing")
    with pytest.raises(gateway.Rejected):
        gateway.refund("r:1", made.id)
    with pytest.raises(gateway.Rejected):
        gateway.refund("r:2", "pi_nobody")


def test_a_burned_key_cannot_charge_any_more(sandbox: SandboxProcess) -> None:
    """G2: a sender that was stopped and goes on later finds its key used up."""
    assert burn() == "burned"
    assert burn() == "burned"

    with pytest.raises(gateway.KeyMismatch):
        charge()

    assert sandbox.charges() == []
    found = gateway.find(OPERATION, a_minute_ago())
    assert [(each.key, each.status) for each in found] == [(KEY, "cancelled")]


@pytest.mark.parametrize("method", ["pm_card_visa", "pm_card_chargeDeclined"])
def test_a_key_that_was_charged_under_is_not_burned(sandbox: SandboxProcess, method: str) -> None:
    """G2."""
    sandbox.post(
        "/payment_intents",
        KEY,
        amount="1250",
        currency="eur",
        confirm="true",
        payment_method=method,
    )
    assert burn() == "already_used"
    assert len(sandbox.charges()) == 1


def test_a_key_whose_charge_failed_is_already_used(sandbox: SandboxProcess) -> None:
    """G2."""
    sandbox.faults(gateway={"mode": "error", "count": 1})
    with pytest.raises(gateway.GatewayUnavailable):
        charge()
    assert burn() == "already_used"
    assert gateway.find(OPERATION, a_minute_ago()) == []


@pytest.mark.parametrize("mode", ["error", "drop_reply"])
def test_burning_may_fail_and_be_repeated(sandbox: SandboxProcess, mode: str) -> None:
    """G2: also a burn whose failure is stored has used the key up."""
    sandbox.faults(gateway={"mode": mode, "count": 1})
    with pytest.raises(gateway.GatewayUnavailable):
        burn()

    assert burn() == "burned"

    with pytest.raises(gateway.KeyMismatch):
        charge()
    assert sandbox.charges() == []
    assert {each.status for each in gateway.find(OPERATION, a_minute_ago())} <= {"cancelled"}


def test_a_burn_that_could_not_cancel_cancels_when_repeated(sandbox: SandboxProcess) -> None:
    """G2."""
    # This seed spares the first call, the creation, and hits the second, the cancellation.
    sandbox.faults(gateway={"mode": "error", "ratio": 0.5, "seed": 0})
    with pytest.raises(gateway.GatewayUnavailable):
        burn()
    sandbox.faults()
    found = gateway.find(OPERATION, a_minute_ago())
    assert [each.status for each in found] == ["requires_payment_method"]

    assert burn() == "burned"

    assert gateway.retrieve(found[0].id).status == "cancelled"


# --- Processes -----------------------------------------------------------------------


def test_one_connection_serves_call_after_call(settings: Settings) -> None:
    """B7: no new connection, and no new handshake, for each call."""
    settings.STRIPE_API_KEY = API_KEY
    with canned_server(Canned(404, error("resource_missing"))) as server:
        settings.STRIPE_API_BASE = server.url
        for _ in range(5):
            with pytest.raises(gateway.Rejected):
                gateway.retrieve("pi_1")
    assert len(server.seen) == 5
    assert len({seen.peer for seen in server.seen}) == 1


_FORKING = """
import os, sys
from django.conf import settings
settings.configure(STRIPE_API_KEY="sk_test_fork", STRIPE_API_BASE=sys.argv[1])
from purchases import gateway

def charge(name):
    for number in range(25):
        made = gateway.charge(f"{name}:{number}", name, 100 + number, "eur", "pm_card_visa")
        assert (made.key, made.amount) == (f"{name}:{number}", 100 + number), made

gateway.charge("parent:first", "parent", 5, "eur", "pm_card_visa")
child = os.fork()
if child == 0:
    try:
        charge("child")
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)
charge("parent")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_read_its_parents_answers(sandbox: SandboxProcess) -> None:
    """D1, B2: workers fork after the client may have been used."""
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, sandbox.gateway_url],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(sandbox.charges()) == 51


def test_threads_may_charge_at_once(sandbox: SandboxProcess) -> None:
    """A3: also sixteen callers of one key make one charge."""

    def try_charge(_: int) -> str:
        try:
            return charge().id
        except gateway.KeyInUse:
            return "in use"

    sandbox.faults(gateway={"mode": "slow", "delay_s": 0.3})
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(try_charge, range(16)))
    assert ids <= {charge().id, "in use"}
    assert len(sandbox.charges()) == 1


@pytest.mark.parametrize(
    "raised",
    [
        gateway.GatewayUnavailable("no answer", 3.0),
        gateway.KeyConsumed("consumed"),
        gateway.KeyInUse("in use"),
        gateway.KeyMismatch("mismatch"),
        gateway.Declined("lost_card", "declined", "pi_1"),
        gateway.Rejected("resource_missing", "no such card"),
    ],
)
def test_every_outcome_survives_the_way_between_processes(raised: gateway.GatewayError) -> None:
    """B2: a worker's child hands its exceptions to the main process."""
    copy = pickle.loads(pickle.dumps(raised))  # noqa: S301  # our own bytes
    assert (type(copy), vars(copy), copy.args) == (type(raised), vars(raised), raised.args)
    assert copy.detail in str(copy)
