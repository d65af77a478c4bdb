"""Refunds: create, retrieve, list."""

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from deploy.sandbox.database import Database
from deploy.sandbox.gateway import paging, records
from deploy.sandbox.gateway.calls import Action, Answer
from deploy.sandbox.gateway.errors import GatewayError, missing, unexpected_state
from deploy.sandbox.gateway.params import Params


class Refunds:
    """The calls below ``/v1/refunds``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, params: Params, _path: Mapping[str, str]) -> Action:
        """Give back what is left of a charge, or ``amount`` of it."""
        params.only("payment_intent", "charge", "amount", "reason", "metadata", "expand")
        params.expands()
        intent, charge = params.text("payment_intent"), params.text("charge")
        if (intent is None) == (charge is None):
            raise GatewayError(400, "Give either payment_intent or charge.", param="charge")
        amount = params.whole("amount", least=1, most=10**12)
        reason = params.text("reason")
        metadata = json.dumps(params.mapping("metadata"))

        def run(_key: str | None, _decline: bool) -> Answer:
            row = self._charge(intent, charge)
            left = row["amount"] - row["amount_refunded"]
            if left == 0:
                raise GatewayError(
                    400, f"Charge {row['id']} is refunded already.", code="charge_already_refunded"
                )
            given = left if amount is None else amount
            if given > left:
                raise GatewayError(400, f"Only {left} is left to refund.", param="amount")
            identifier = records.new_id("re")
            self._database.execute(
                "UPDATE charge SET amount_refunded = amount_refunded + ? WHERE id = ?",
                given,
                row["id"],
            )
            self._database.execute(
                "INSERT INTO refund (id, charge, intent, amount, currency, reason, metadata,"
                " created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                identifier,
                row["id"],
                row["intent"],
                given,
                row["currency"],
                reason,
                metadata,
                time.time(),
            )
            return Answer(200, self._shown(identifier))

        return Action(run)

    def retrieve(self, params: Params, path: Mapping[str, str]) -> Mapping[str, Any]:
        """One refund."""
        params.only("expand")
        params.expands()
        return self._shown(path["id"])

    def list(self, params: Params, _path: Mapping[str, str]) -> Mapping[str, Any]:
        """Refunds, newest first, of one payment intent or charge when that is given."""
        params.only(*paging.PARAMS, "payment_intent", "charge")
        params.expands()
        intent, charge = params.text("payment_intent"), params.text("charge")
        where = None
        if intent is not None:
            where = ("intent", intent)
        elif charge is not None:
            where = ("charge", charge)
        return paging.page(
            self._database, "refund", params, records.refund, url="/v1/refunds", where=where
        )

    def _charge(self, intent: str | None, charge: str | None) -> sqlite3.Row:
        """The successful charge that an intent or a charge id names."""
        if intent is not None:
            if self._database.row("SELECT id FROM intent WHERE id = ?", intent) is None:
                raise missing("payment_intent", intent, param="payment_intent")
            column, identifier = "intent", intent
        else:
            column, identifier = "id", str(charge)
            if self._database.row("SELECT id FROM charge WHERE id = ?", identifier) is None:
                raise missing("charge", identifier, param="charge")
        row = self._database.row(
            f"SELECT * FROM charge WHERE {column} = ? AND status = 'succeeded'",  # noqa: S608
            identifier,
        )
        if row is None:
            raise unexpected_state(f"{identifier} has no successful charge to refund.")
        return row

    def _shown(self, identifier: str) -> dict[str, Any]:
        row = self._database.row("SELECT * FROM refund WHERE id = ?", identifier)
        if row is None:
            raise missing("refund", identifier, param="refund", status=404)
        return records.refund(row)
