"""Stripe's names for payment methods that behave in a known way."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """What confirming with it leads to.

    ``code`` and ``decline_code`` are set when it is declined.
    """

    status: str
    code: str | None = None
    decline_code: str | None = None
    message: str = ""


_GOOD = ("visa", "visa_debit", "mastercard", "amex", "discover")
_DECLINES = {
    "chargeDeclined": ("card_declined", "generic_decline"),
    "chargeDeclinedInsufficientFunds": ("card_declined", "insufficient_funds"),
    "chargeDeclinedLostCard": ("card_declined", "lost_card"),
    "chargeDeclinedStolenCard": ("card_declined", "stolen_card"),
    "chargeDeclinedExpiredCard": ("expired_card", None),
    "chargeDeclinedIncorrectCvc": ("incorrect_cvc", None),
    "chargeDeclinedProcessingError": ("processing_error", None),
}


def _declined(code: str, decline_code: str | None) -> Card:
    reason = (decline_code or code).replace("_", " ")
    return Card("declined", code, decline_code, f"The card was declined: {reason}.")


DECLINED = _declined("card_declined", "generic_decline")

CARDS: dict[str, Card] = {
    **{f"pm_card_{name}": Card("succeeded") for name in _GOOD},
    "pm_card_authenticationRequired": Card("requires_action"),
    "pm_usBankAccount_processing": Card("processing"),
    **{f"pm_card_{name}": _declined(*codes) for name, codes in _DECLINES.items()},
    **{f"pm_card_visa_{name}": _declined(*codes) for name, codes in _DECLINES.items()},
}
