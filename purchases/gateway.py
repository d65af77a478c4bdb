"""The payment gateway: Stripe, called so that a charge is made once.

Amounts are whole numbers in the currency's smallest unit (cents). Every request takes at
most ``CONNECT_TIMEOUT`` to find the gateway and connect, and with ``STRIPE_TIMEOUT`` for the
whole answer in addition (both in seconds) it is over; it is tried once: when to try again is
decided by the operation.

What Stripe answers becomes one of a closed set of outcomes: a :class:`Charge` or
:class:`Refund`, or one of the exceptions below, all of them :class:`GatewayError`.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import httpx
import stripe
from django.conf import settings

from operations.dependencies.deadline import within
from operations.dependencies.http import BoundedClient
from operations.dependencies.retry_after import seconds_of

CONNECT_TIMEOUT = 3.05
#: Used when the setting STRIPE_TIMEOUT is absent.
READ_TIMEOUT = 15.0
#: Clocks here and at Stripe may differ by this many seconds when charges are looked for.
CLOCK_MARGIN = 300
#: More payment intents than this in a window are not searched through.
FIND_LIMIT = 100_000
#: Bytes of one answer; a page of a hundred payments has less than one million.
MAX_BODY_BYTES = 16 * 1024 * 1024

ChargeStatus = Literal[
    "succeeded",
    "declined",
    "refunded",
    "cancelled",
    "processing",
    "requires_action",
    "requires_capture",
    "requires_confirmation",
    "requires_payment_method",
]
_STATUSES: dict[str, ChargeStatus] = {
    "succeeded": "succeeded",
    "canceled": "cancelled",
    "processing": "processing",
    "requires_action": "requires_action",
    "requires_capture": "requires_capture",
    "requires_confirmation": "requires_confirmation",
    "requires_payment_method": "requires_payment_method",
}

# The library would report how long calls took, under an id that it writes into the home
# directory, and would fail each call where there is none.
stripe.enable_telemetry = False


@dataclass(frozen=True)
class Charge:
    """A payment intent as it is at Stripe.

    ``key`` is the idempotency key that made it, empty for one not made here. ``declined``
    means that the last try was refused, ``refunded`` that all of it went back. ``replayed``
    tells that the key had been used before; the status is the current one all the same.
    """

    id: str
    key: str
    status: ChargeStatus
    amount: int
    amount_refunded: int
    currency: str
    replayed: bool
    decline_code: str | None


@dataclass(frozen=True)
class Refund:
    """A refund as it is at Stripe: ``status`` is ``succeeded``, ``pending``,
    ``requires_action``, ``failed`` or ``canceled``; the last two returned no money."""

    id: str
    payment_intent: str
    status: str
    amount: int
    currency: str
    replayed: bool


class GatewayError(Exception):
    """No charge or refund came back; ``detail`` says what did."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class GatewayUnavailable(GatewayError):
    """No answer, or none about the payment: try the same key again later.

    Connection lost or too slow, 5xx, 429, key of ours refused, unreadable body. The call
    may have had its effect. ``retry_after`` is in seconds, above 0 when Stripe named a time.
    """

    def __init__(self, detail: str, retry_after: float = 0) -> None:
        super().__init__(detail)
        self.args = (detail, retry_after)
        self.retry_after = retry_after


class KeyConsumed(GatewayError):
    """Stripe failed when it first saw the key, and will answer that failure for ever."""


class KeyInUse(GatewayError):
    """Another call with the key is being worked on at this moment."""


class KeyMismatch(GatewayError):
    """The key was used before with other parameters or for another call."""


class Declined(GatewayError):
    """The card was refused: final for this key.

    ``code`` is the bank's reason when it gave one, else Stripe's. ``payment_intent`` is
    the id of the intent, which stays uncharged.
    """

    def __init__(self, code: str, detail: str, payment_intent: str | None = None) -> None:
        super().__init__(detail)
        self.args = (code, detail, payment_intent)
        self.code = code
        self.payment_intent = payment_intent


class Rejected(GatewayError):
    """Stripe refuses the request as such, e.g. an unknown payment method: final."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.args = (code, detail)
        self.code = code


def charge(key: str, operation_id: str, amount: int, currency: str, payment_method: str) -> Charge:
    """Create and confirm a payment in one call under idempotency key ``key``.

    The status of a replayed answer is as old as the answer, so it is retrieved again
    before it is returned. Raises any :class:`GatewayError`.
    """
    with _outcomes():
        made = _client().v1.payment_intents.create(
            {
                "amount": amount,
                "currency": currency,
                "payment_method": payment_method,
                "confirm": True,
                "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
                "metadata": _metadata(key, operation_id),
                "expand": ["latest_charge"],
            },
            {"idempotency_key": key},
        )
        return _current(made)


def retrieve(payment_intent: str) -> Charge:
    """The payment intent with this id as it is now.

    Raises :class:`GatewayUnavailable`, or :class:`Rejected` when there is none.
    """
    with _outcomes():
        return _charge(_retrieved(payment_intent))


def labelled(payment_intent: str) -> tuple[str, Charge]:
    """As :func:`retrieve`, with the operation it says it is for; empty: not made here."""
    with _outcomes():
        intent = _retrieved(payment_intent)
        return _label(intent, "operation_id"), _charge(intent)


def find(operation_id: str, since: datetime, until: datetime | None = None) -> list[Charge]:
    """Every payment intent made for an operation, newest first.

    Looks through all those created from ``since`` to ``until`` (aware; widened by
    ``CLOCK_MARGIN``) with the list call, which is up to date; search is not. Never answers
    with part of them: raises :class:`GatewayUnavailable` instead.
    """
    created: stripe.params.PaymentIntentListParamsCreated = {
        "gte": int(since.timestamp()) - CLOCK_MARGIN
    }
    if until is not None:
        created["lte"] = int(until.timestamp()) + CLOCK_MARGIN
    found = []
    with _outcomes():
        page = _client().v1.payment_intents.list(
            {"created": created, "limit": 100, "expand": ["data.latest_charge"]}
        )
        for number, intent in enumerate(page.auto_paging_iter()):
            if number == FIND_LIMIT:
                raise GatewayUnavailable(f"More than {FIND_LIMIT} payments in the window.")
            if _label(intent, "operation_id") == operation_id:
                found.append(_charge(intent))
    return found


@dataclass(frozen=True)
class Listed:
    """A page of payment intents, each with the operation it says it is for (empty for one
    not made here). ``after`` asks for the next page; empty: there is none."""

    payments: list[tuple[str, Charge]]
    after: str


def listed(since: datetime, until: datetime, after: str = "") -> Listed:
    """The payment intents created in that time, newest first, a page of them.

    ``since`` and ``until`` are aware. Raises :class:`GatewayUnavailable`.
    """
    created: stripe.params.PaymentIntentListParamsCreated = {
        "gte": int(since.timestamp()),
        "lte": int(until.timestamp()),
    }
    question: stripe.params.PaymentIntentListParams = {
        "created": created,
        "limit": 100,
        "expand": ["data.latest_charge"],
    }
    if after:
        question["starting_after"] = after
    with _outcomes():
        page = _client().v1.payment_intents.list(question)
        payments = [(_label(intent, "operation_id"), _charge(intent)) for intent in page.data]
        return Listed(payments, page.data[-1].id if page.has_more else "")


def refund(key: str, payment_intent: str) -> Refund:
    """Give back all that is left of a payment under idempotency key ``key``.

    One that was given back before, under whatever key, is answered with its refund and
    counts as replayed. Raises any :class:`GatewayError` but :class:`Declined`.
    """
    with _outcomes():
        try:
            made = _client().v1.refunds.create(
                {"payment_intent": payment_intent}, {"idempotency_key": key}
            )
        except stripe.InvalidRequestError as error:
            if error.code != "charge_already_refunded":
                raise
            return _last_refund(payment_intent)
        replayed = _replayed(made.last_response)
        return _refund(_client().v1.refunds.retrieve(made.id) if replayed else made, replayed)


def cancel(payment_intent: str) -> Charge:
    """Keep a payment that has not succeeded from ever doing so.

    Returns what it is now: ``cancelled``, or the status that was past cancelling. Raises
    :class:`GatewayUnavailable`, or :class:`Rejected` when there is none.
    """
    with _outcomes():
        try:
            return _charge(
                _client().v1.payment_intents.cancel(payment_intent, {"expand": ["latest_charge"]})
            )
        except stripe.InvalidRequestError as error:
            if error.code != "payment_intent_unexpected_state":
                raise
            return _charge(_retrieved(payment_intent))


def burn(
    key: str, operation_id: str, amount: int, currency: str
) -> Literal["burned", "already_used"]:
    """Use up a charge key without charging, so that no late sender can charge under it.

    ``burned``: the key never charged and never will. ``already_used``: a charge was asked
    for under it, and :func:`find` tells what came of it. Safe to repeat. Raises
    :class:`KeyInUse` while a charge under the key is being worked on, and
    :class:`GatewayUnavailable`.
    """
    try:
        with _outcomes():
            made = _client().v1.payment_intents.create(
                {
                    "amount": amount,
                    "currency": currency,
                    "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
                    "metadata": _metadata(key, operation_id),
                    "expand": ["latest_charge"],
                },
                {"idempotency_key": key},
            )
            unused = _current(made)
    except KeyMismatch:
        return "already_used"
    except KeyConsumed:
        # It is the call above that failed and is stored, for a charge is another set of
        # parameters; and an intent that it may have left is not confirmed.
        return "burned"
    if unused.status != "cancelled":
        cancel(unused.id)
    return "burned"


def _current(made: stripe.PaymentIntent) -> Charge:
    """What a create call made; as it is now, should the answer be a replayed one."""
    replayed = _replayed(made.last_response)
    return _charge(_retrieved(made.id) if replayed else made, replayed)


def _retrieved(payment_intent: str) -> stripe.PaymentIntent:
    return _client().v1.payment_intents.retrieve(payment_intent, {"expand": ["latest_charge"]})


def _last_refund(payment_intent: str) -> Refund:
    page = _client().v1.refunds.list({"payment_intent": payment_intent, "limit": 1})
    return _refund(page.data[0], replayed=True)


def _charge(intent: stripe.PaymentIntent, replayed: bool = False) -> Charge:
    latest = intent.latest_charge
    returned = latest.amount_refunded if isinstance(latest, stripe.Charge) else 0
    problem = intent.last_payment_error
    status = _STATUSES[intent.status]
    if status == "requires_payment_method" and problem is not None:
        status = "declined"
    elif status == "succeeded" and returned >= intent.amount:
        status = "refunded"
    return Charge(
        id=intent.id,
        key=_label(intent, "idempotency_key"),
        status=status,
        amount=intent.amount,
        amount_refunded=returned,
        currency=intent.currency,
        replayed=replayed,
        decline_code=_reason(problem.to_dict()) if problem is not None else None,
    )


def _refund(made: stripe.Refund, replayed: bool) -> Refund:
    return Refund(
        id=made.id,
        payment_intent=str(made.payment_intent),
        status=str(made.status),
        amount=made.amount,
        currency=made.currency,
        replayed=replayed,
    )


def _metadata(key: str, operation_id: str) -> dict[str, str]:
    # Stripe does not tell which key made an object, so the object says so itself.
    return {"operation_id": operation_id, "idempotency_key": key}


def _label(intent: stripe.PaymentIntent, name: str) -> str:
    return str(intent.metadata[name]) if name in intent.metadata else ""


def _reason(problem: dict[str, Any]) -> str:
    return str(problem.get("decline_code") or problem.get("code") or "declined")


def _replayed(response: Any) -> bool:
    return response is not None and response.headers.get("Idempotent-Replayed") == "true"


@contextmanager
def _outcomes() -> Iterator[None]:
    """Turn whatever the library raises into one of this module's exceptions."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GatewayUnavailable(f"No answer from the gateway: {error!r}.") from error
    except stripe.StripeError as error:
        raise _outcome(error) from error
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        # The library, and the reading above, trust an answer to have the known members.
        raise GatewayUnavailable(f"Unreadable answer from the gateway: {error!r}.") from error


def _outcome(error: stripe.StripeError) -> GatewayError:
    status = error.http_status or 0
    problem = _problem(error)
    detail = f"{status}: {problem.get('message') or error.user_message}"[:500]
    if error.request_id:
        detail = f"{detail} ({error.request_id})"
    if not problem or status in {401, 403, 429} or isinstance(error, stripe.RateLimitError):
        return GatewayUnavailable(detail, _retry_after(error))
    if status >= 500:
        replayed = (error.headers or {}).get("Idempotent-Replayed") == "true"
        return KeyConsumed(detail) if replayed else GatewayUnavailable(detail, _retry_after(error))
    if status == 409:
        return KeyInUse(detail)
    if isinstance(error, stripe.IdempotencyError):
        return KeyMismatch(detail)
    if status == 402:
        intent = problem.get("payment_intent") or {}
        return Declined(_reason(problem), detail, intent.get("id"))
    return Rejected(str(problem.get("code") or problem.get("type")), detail)


def _problem(error: stripe.StripeError) -> dict[str, Any]:
    """The ``error`` object of the body; empty when it was somebody else who answered."""
    body = error.json_body
    problem = body.get("error") if isinstance(body, dict) else None
    return problem if isinstance(problem, dict) else {}


def _retry_after(error: stripe.StripeError) -> float:
    return seconds_of((error.headers or {}).get("Retry-After"))


class _Http(stripe.HTTPClient):
    """What the library sends by. Its own ones have time-outs for each read only, and take
    every exception for a broken connection, also the one by which a time limit ends the
    attempt; here what is raised comes out as it is."""

    name = "httpx"

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
    ) -> tuple[bytes, int, Mapping[str, str]]:
        with (
            within(CONNECT_TIMEOUT + self._timeout),
            _HTTP.of_this_process().stream(
                method,
                url,
                headers=headers,
                content=post_data,
                timeout=httpx.Timeout(self._timeout, connect=CONNECT_TIMEOUT),
            ) as response,
        ):
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise GatewayUnavailable(f"An answer of more than {MAX_BODY_BYTES} bytes.")
            status, answered = response.status_code, response.headers
        if status >= 400 and not _is_json(body):
            # The library would lose the headers of one that is not the gateway's own.
            raise GatewayUnavailable(
                f"{status}: an answer that is not JSON.", seconds_of(answered.get("Retry-After"))
            )
        return bytes(body), status, answered


def _is_json(body: bytearray) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


_HTTP = BoundedClient(verify=ssl.create_default_context(cafile=stripe.ca_bundle_path))


def _client() -> stripe.StripeClient:
    if not settings.STRIPE_API_KEY:
        raise GatewayUnavailable("STRIPE_API_KEY is not set.")
    timeout = float(getattr(settings, "STRIPE_TIMEOUT", READ_TIMEOUT))
    return _client_with(settings.STRIPE_API_KEY, settings.STRIPE_API_BASE.rstrip("/"), timeout)


@lru_cache(maxsize=1)
def _client_with(key: str, base: str, timeout: float) -> stripe.StripeClient:
    return stripe.StripeClient(
        key,
        base_addresses={"api": base} if base else None,
        max_network_retries=0,
        http_client=_Http(timeout),
    )
