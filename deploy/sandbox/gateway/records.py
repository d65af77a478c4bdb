"""Stored rows as the objects that Stripe answers with."""

import json
import secrets
import sqlite3
import string
from typing import Any

from deploy.sandbox.database import Database

_ALPHABET = string.ascii_letters + string.digits


def new_id(prefix: str) -> str:
    """An id in Stripe's form, e.g. ``pi_`` and 24 letters and digits."""
    return f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(24))}"


def payment_intent(database: Database, row: sqlite3.Row, *, expand: bool = False) -> dict[str, Any]:
    """A payment intent; with ``expand`` its latest charge stands in it whole."""
    latest: Any = row["latest_charge"]
    if expand and latest is not None:
        found = database.row("SELECT * FROM charge WHERE id = ?", latest)
        latest = charge(found) if found else None
    waiting = row["status"] == "requires_action"
    return {
        "id": row["id"],
        "object": "payment_intent",
        "amount": row["amount"],
        "amount_received": row["amount"] if row["status"] == "succeeded" else 0,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        "canceled_at": None if row["canceled"] is None else int(row["canceled"]),
        "cancellation_reason": row["cancellation_reason"],
        "capture_method": "automatic",
        "client_secret": f"{row['id']}_secret_sandbox",
        "confirmation_method": "automatic",
        "created": int(row["created"]),
        "currency": row["currency"],
        "last_payment_error": _loaded(row["last_payment_error"]),
        "latest_charge": latest,
        "livemode": False,
        "metadata": _loaded(row["metadata"]),
        "next_action": {"type": "use_stripe_sdk"} if waiting else None,
        "payment_method": row["payment_method"],
        "payment_method_types": ["card"],
        "status": row["status"],
    }


def charge(row: sqlite3.Row) -> dict[str, Any]:
    """A charge: one try to move money."""
    succeeded = row["status"] == "succeeded"
    return {
        "id": row["id"],
        "object": "charge",
        "amount": row["amount"],
        "amount_captured": row["amount"] if succeeded else 0,
        "amount_refunded": row["amount_refunded"],
        "captured": succeeded,
        "created": int(row["created"]),
        "currency": row["currency"],
        "failure_code": row["failure_code"],
        "livemode": False,
        "outcome": {"reason": row["decline_code"]} if row["decline_code"] else None,
        "paid": succeeded,
        "payment_intent": row["intent"],
        "refunded": succeeded and row["amount_refunded"] == row["amount"],
        "status": "succeeded" if succeeded else "failed",
    }


def refund(row: sqlite3.Row) -> dict[str, Any]:
    """A refund, which succeeds at once."""
    return {
        "id": row["id"],
        "object": "refund",
        "amount": row["amount"],
        "charge": row["charge"],
        "created": int(row["created"]),
        "currency": row["currency"],
        "metadata": _loaded(row["metadata"]),
        "payment_intent": row["intent"],
        "reason": row["reason"],
        "status": "succeeded",
    }


def _loaded(stored: str | None) -> Any:
    return None if stored is None else json.loads(stored)
