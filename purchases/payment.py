"""Getting a purchase paid once, whatever became of earlier attempts.

The rules for the key's number, since a second key is a second charge:

- It is written down, in a fenced transaction, before it is sent.
- Who comes back first looks up what is there, in the gateway's list.
- It rises only when the present key can never charge again: the gateway answers it with a
  stored failure, or has forgotten it and every earlier sender is past its time limit. And
  even then only when the list, read *after* that became true, shows no charge.
- A lost connection, a refused request (4xx) or a rate limit do not use a key up.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings

from operations import Claim, DependencyError, NotReady
from operations.dependencies import Dependency
from purchases import gateway, verbs
from purchases.gateway import Charge
from purchases.models import Purchase
from purchases.verbs import Found

DEPENDENCY = "payments"
#: How long the gateway remembers a key at least, in seconds, unless the setting
#: STRIPE_KEY_LIFETIME says otherwise.
KEY_LIFETIME = 24 * 3600
#: A call under the same key is being worked on: seconds until we ask again.
IN_USE_DELAY = 2.0
#: The bank takes its time: seconds until we ask again.
PROCESSING_DELAY = 15.0
#: Keys that may turn out to be used up in one attempt.
KEYS_IN_A_ROW = 3

#: The code of :class:`NotPaid` for a payment that was made and went back.
REFUNDED = "payment_refunded"
#: What an earlier call came to, the most telling first. Anything else (cancelled, waiting
#: for the customer) is told by the key itself when it is sent again.
_TELLING = ("succeeded", "refunded", "processing", "declined")


class NotPaid(Exception):
    """There will be no payment: a business answer, and final."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class WrongCharge(Exception):
    """The gateway holds another charge than was asked for, or several: a bug, for people."""


def pay(claim: Claim, purchase: Purchase, began: float) -> Charge:
    """Charge under the purchase's first key, which this very attempt has written down.

    ``began`` is a monotonic time before that. Returns the charge, which has succeeded.
    Raises :class:`NotPaid`, :class:`DependencyError` and :class:`NotReady`.
    """
    return _charge(claim, purchase, began)


def pay_again(claim: Claim, found: Found) -> Charge:
    """As :func:`pay`, after an earlier attempt of which nobody knows how far it came."""
    purchase, now = found
    # Times of the database, read before the look-up.
    no_sender_left = purchase.key_sent_at + timedelta(seconds=claim.kind.time_limit)
    remembered = now - purchase.key_made_at < _key_lifetime()
    # All payments of the account are looked through, so no further than ours can be. One
    # that was made later all the same is found when the key is sent again, while the
    # gateway remembers it; when it does not, nothing but the list can show it.
    charge = look_up(purchase, until=no_sender_left if remembered else None)
    if charge is not None:
        return _paid(purchase, charge)
    began = time.monotonic()
    with claim.fenced():
        if remembered:
            verbs.resend(purchase)
        else:
            wait = no_sender_left - now
            if wait > timedelta(0):
                raise NotReady(wait.total_seconds(), "An earlier attempt may still be paying.")
            verbs.next_key(purchase)
    return _charge(claim, purchase, began)


def look_up(purchase: Purchase, *, until: datetime | None = None) -> Charge | None:
    """What came of earlier calls for this purchase, whatever their key.

    :param until: of those that were made before
    """
    with gateway_outcomes():
        charges = gateway.find(str(purchase.operation), purchase.created_at, until)
    if sum(charge.status == "succeeded" for charge in charges) > 1:
        raise WrongCharge(f"Several charges: {', '.join(charge.id for charge in charges)}.")
    telling = [charge for charge in charges if charge.status in _TELLING]
    return min(telling, key=lambda charge: _TELLING.index(charge.status), default=None)


#: One call of ours may be two of the gateway's: the charge, and its present status.
PAYMENTS = Dependency(
    DEPENDENCY,
    connect_timeout=gateway.CONNECT_TIMEOUT,
    total_timeout=2 * (gateway.CONNECT_TIMEOUT + settings.STRIPE_TIMEOUT),
    answers=(gateway.GatewayError,),
)


@contextmanager
def gateway_outcomes() -> Iterator[None]:
    """Around a call: what an outcome of the gateway means to operations, wait or try again."""
    with PAYMENTS.call(), _translated():
        yield


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except gateway.KeyInUse as error:
        raise NotReady(IN_USE_DELAY, error.detail) from error
    except gateway.GatewayUnavailable as error:
        raise DependencyError(DEPENDENCY, error.detail, retry_after=error.retry_after) from error


def _charge(claim: Claim, purchase: Purchase, began: float) -> Charge:
    """Ask for the charge under the key that was written down after ``began``."""
    for _ in range(KEYS_IN_A_ROW):
        # Others take a sender that is past its time limit for gone. One that was stopped
        # must not send when it wakes: its key may be forgotten and would charge anew.
        if time.monotonic() - began > claim.kind.soft_time_limit:
            raise NotReady(0, "It is too late to send what this attempt wrote down.")
        try:
            return _paid(purchase, _ask(purchase))
        except gateway.KeyConsumed:
            if (charge := look_up(purchase)) is not None:
                return _paid(purchase, charge)
        except gateway.KeyMismatch as error:
            if (charge := look_up(purchase)) is not None:
                return _paid(purchase, charge)
            # Burnt by a compensation? Then the claim is lost, and this says so.
            with claim.fenced():
                pass
            # Else our own call has changed since the key was first used. Another key might
            # charge twice; so this is for people.
            raise WrongCharge(f"Key {purchase.charge_key} belongs to another call.") from error
        began = time.monotonic()
        with claim.fenced():
            verbs.next_key(purchase)
    raise DependencyError(DEPENDENCY, f"It failed under {KEYS_IN_A_ROW} keys in a row.")


def _ask(purchase: Purchase) -> Charge:
    try:
        with gateway_outcomes():
            return gateway.charge(
                purchase.charge_key,
                str(purchase.operation),
                purchase.amount,
                purchase.currency,
                purchase.payment_method,
            )
    except gateway.Declined as error:
        raise NotPaid("payment_declined", f"The payment was declined: {error.code}.") from error
    except gateway.Rejected as error:
        raise NotPaid(
            "payment_rejected", f"The gateway refuses the payment: {error.code}."
        ) from error


def _paid(purchase: Purchase, charge: Charge) -> Charge:
    """The charge, if it has succeeded and is the one that was asked for."""
    if (charge.amount, charge.currency) != (purchase.amount, purchase.currency):
        raise WrongCharge(
            f"{charge.id} is of {charge.amount} {charge.currency}, "
            f"not of {purchase.amount} {purchase.currency}."
        )
    match charge.status:
        case "succeeded":
            return charge
        case "processing":
            raise NotReady(PROCESSING_DELAY, f"The bank is still working on {charge.id}.")
        case "declined":
            raise NotPaid("payment_declined", f"The payment was declined: {charge.decline_code}.")
        case "refunded":
            raise NotPaid(REFUNDED, "The payment went back.")
        case "cancelled":
            raise NotPaid("payment_declined", "The payment was cancelled.")
        case _:
            # Nobody is there who could confirm it; it must not be confirmed later either.
            with gateway_outcomes():
                now = gateway.cancel(charge.id)
            if now.status == charge.status:
                raise DependencyError(DEPENDENCY, f"{charge.id} stays {charge.status}.")
            return _paid(purchase, now)


def _key_lifetime() -> timedelta:
    return timedelta(seconds=float(getattr(settings, "STRIPE_KEY_LIFETIME", KEY_LIFETIME)))
