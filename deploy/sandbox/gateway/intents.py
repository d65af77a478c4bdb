"""Payment intents: create, confirm, cancel, retrieve, list, search."""

import json
import re
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from deploy.sandbox.database import Database
from deploy.sandbox.gateway import paging, records
from deploy.sandbox.gateway.calls import Action, Answer
from deploy.sandbox.gateway.cards import CARDS, DECLINED, Card
from deploy.sandbox.gateway.errors import GatewayError, missing, unexpected_state
from deploy.sandbox.gateway.params import Params

_LARGEST_AMOUNT = 99_999_999
_CONFIRMABLE = {"requires_payment_method", "requires_confirmation"}
_CANCELABLE = {*_CONFIRMABLE, "requires_action", "processing"}
_CLAUSE = re.compile(
    r"""\s*(?:metadata\[['"](?P<key>[^'"]+)['"]\]|status)\s*:\s*['"](?P<value>[^'"]*)['"]\s*"""
)


class Intents:
    """The calls below ``/v1/payment_intents``.

    A search sees an intent only ``search_lag`` seconds after its creation; lists and
    retrieval see it at once.
    """

    def __init__(self, database: Database, search_lag: float) -> None:
        self._database = database
        self._search_lag = search_lag

    def create(self, params: Params, _path: Mapping[str, str]) -> Action:
        """Make an intent and, with ``confirm=true``, charge it in the same call."""
        params.only(
            "amount",
            "currency",
            "confirm",
            "payment_method",
            "metadata",
            "automatic_payment_methods",
            "description",
            "expand",
        )
        amount = params.whole("amount", least=1, most=_LARGEST_AMOUNT)
        if amount is None:
            params.needed("amount")
        currency = params.needed("currency").lower()
        if not re.fullmatch("[a-z]{3}", currency):
            raise GatewayError(400, f"Invalid currency: {currency}", param="currency")
        confirm = params.flag("confirm")
        method = params.text("payment_method")
        if confirm and method is None:
            raise unexpected_state("An intent without a payment method cannot be confirmed.")
        metadata = json.dumps(params.mapping("metadata"))
        expand = params.expands("latest_charge")

        def run(key: str | None, decline: bool) -> Answer:
            card = None if method is None else _card(method)
            identifier = records.new_id("pi")
            self._database.execute(
                "INSERT INTO intent (id, amount, currency, status, payment_method, metadata,"
                " created) VALUES (?, ?, ?, ?, ?, ?, ?)",
                identifier,
                amount,
                currency,
                "requires_confirmation" if card else "requires_payment_method",
                method,
                metadata,
                time.time(),
            )
            if confirm and card is not None:
                return self._confirm(identifier, DECLINED if decline else card, key, expand)
            return Answer(200, self._shown(identifier, expand))

        return Action(run, charges=confirm)

    def confirm(self, params: Params, path: Mapping[str, str]) -> Action:
        """Charge an intent that was made without ``confirm=true``."""
        params.only("payment_method", "expand")
        expand = params.expands("latest_charge")
        given = params.text("payment_method")
        self._row(path["id"])

        def run(key: str | None, decline: bool) -> Answer:
            row = self._row(path["id"])
            method = given or row["payment_method"]
            if row["status"] not in _CONFIRMABLE or method is None:
                raise self._wrong_state(row, "confirmed")
            card = _card(method)
            self._update(row["id"], payment_method=method)
            return self._confirm(row["id"], DECLINED if decline else card, key, expand)

        return Action(run, charges=True)

    def cancel(self, params: Params, path: Mapping[str, str]) -> Action:
        """Make sure that an intent which has not succeeded never will."""
        params.only("cancellation_reason", "expand")
        expand = params.expands("latest_charge")
        reason = params.text("cancellation_reason")
        self._row(path["id"])

        def run(_key: str | None, _decline: bool) -> Answer:
            row = self._row(path["id"])
            if row["status"] not in _CANCELABLE:
                raise self._wrong_state(row, "canceled")
            self._update(
                row["id"], status="canceled", canceled=time.time(), cancellation_reason=reason
            )
            return Answer(200, self._shown(row["id"], expand))

        return Action(run)

    def retrieve(self, params: Params, path: Mapping[str, str]) -> Mapping[str, Any]:
        """One intent as it is now."""
        params.only("expand", "client_secret")
        return self._shown(path["id"], params.expands("latest_charge"))

    def list(self, params: Params, _path: Mapping[str, str]) -> Mapping[str, Any]:
        """Intents, newest first, without any lag."""
        params.only(*paging.PARAMS)
        expand = params.expands("data.latest_charge")
        return paging.page(
            self._database,
            "intent",
            params,
            lambda row: records.payment_intent(self._database, row, expand=expand),
            url="/v1/payment_intents",
        )

    def search(self, params: Params, _path: Mapping[str, str]) -> Mapping[str, Any]:
        """Intents whose metadata or status match, as an index that lags sees them."""
        params.only("query", "limit", "expand")
        expand = params.expands("data.latest_charge")
        wanted = [_clause(part) for part in params.needed("query").split(" AND ")]
        limit = params.whole("limit", least=1, most=100) or 10
        rows = self._database.rows(
            "SELECT * FROM intent WHERE created <= ? ORDER BY seq DESC",
            time.time() - self._search_lag,
        )
        found = [row for row in rows if all(_matches(row, *clause) for clause in wanted)]
        return {
            "object": "search_result",
            "data": [
                records.payment_intent(self._database, row, expand=expand) for row in found[:limit]
            ],
            "has_more": len(found) > limit,
            "next_page": None,
            "url": "/v1/payment_intents/search",
        }

    def charge(self, params: Params, path: Mapping[str, str]) -> Mapping[str, Any]:
        """One charge as it is now."""
        params.only("expand")
        params.expands()
        row = self._database.row("SELECT * FROM charge WHERE id = ?", path["id"])
        if row is None:
            raise missing("charge", path["id"], param="charge", status=404)
        return records.charge(row)

    def _confirm(self, identifier: str, card: Card, key: str | None, expand: bool) -> Answer:
        if card.status in {"requires_action", "processing"}:
            self._update(identifier, status=card.status)
            return Answer(200, self._shown(identifier, expand))
        charge = self._charge(self._row(identifier), card, key)
        if card.status == "succeeded":
            self._update(
                identifier, status="succeeded", latest_charge=charge, last_payment_error=None
            )
            return Answer(200, self._shown(identifier, expand))
        problem = {"type": "card_error", "code": card.code, "message": card.message}
        if card.decline_code is not None:
            problem["decline_code"] = card.decline_code
        self._update(
            identifier,
            status="requires_payment_method",
            payment_method=None,
            latest_charge=charge,
            last_payment_error=json.dumps(problem),
        )
        shown = self._shown(identifier, expand=False)
        return Answer(402, {"error": {**problem, "charge": charge, "payment_intent": shown}})

    def _charge(self, intent: sqlite3.Row, card: Card, key: str | None) -> str:
        identifier = records.new_id("ch")
        self._database.execute(
            "INSERT INTO charge (id, intent, key, amount, currency, status, failure_code,"
            " decline_code, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            identifier,
            intent["id"],
            key,
            intent["amount"],
            intent["currency"],
            card.status,
            card.code,
            card.decline_code,
            time.time(),
        )
        return identifier

    def _update(self, identifier: str, **values: object) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        self._database.execute(
            f"UPDATE intent SET {columns} WHERE id = ?",  # noqa: S608  # the names are ours
            *values.values(),
            identifier,
        )

    def _row(self, identifier: str) -> sqlite3.Row:
        row = self._database.row("SELECT * FROM intent WHERE id = ?", identifier)
        if row is None:
            raise missing("payment_intent", identifier, param="intent", status=404)
        return row

    def _shown(self, identifier: str, expand: bool) -> dict[str, Any]:
        return records.payment_intent(self._database, self._row(identifier), expand=expand)

    def _wrong_state(self, row: sqlite3.Row, verb: str) -> GatewayError:
        return unexpected_state(
            f"This PaymentIntent cannot be {verb} because its status is {row['status']}.",
            payment_intent=records.payment_intent(self._database, row),
        )


def _card(method: str) -> Card:
    card = CARDS.get(method)
    if card is None:
        raise missing("PaymentMethod", method, param="payment_method")
    return card


def _clause(part: str) -> tuple[str | None, str]:
    clause = _CLAUSE.fullmatch(part)
    if clause is None:
        raise GatewayError(400, f"The sandbox cannot search for {part}.", param="query")
    return clause["key"], clause["value"]


def _matches(row: sqlite3.Row, key: str | None, value: str) -> bool:
    if key is None:
        return bool(row["status"] == value)
    return bool(json.loads(row["metadata"]).get(key) == value)
