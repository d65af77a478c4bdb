"""The sandbox's routes put together, and its controls: ledger, faults, health."""

from collections.abc import Mapping

from deploy.sandbox.body import BadBodyError, read_json
from deploy.sandbox.database import Database
from deploy.sandbox.faults import BadFaultsError, Faults
from deploy.sandbox.gateway.api import Gateway
from deploy.sandbox.routing import Route, Router
from deploy.sandbox.server import Request, Response, error_response, json_response
from deploy.sandbox.supplier import Supplier


class Sandbox:
    """Everything the sandbox answers, as one request handler.

    ``search_lag`` is how many seconds the gateway's search stays behind.
    """

    def __init__(self, database: Database, search_lag: float) -> None:
        self._database = database
        self._faults = Faults(database)
        self._supplier = Supplier(database, self._faults)
        gateway = Gateway(database, self._faults, search_lag)
        self._router = Router(
            [
                Route("GET", "/healthz", self._health),
                Route("GET", "/ledger", self._ledger),
                Route("DELETE", "/ledger", self._empty),
                Route("GET", "/faults", self._show_faults),
                Route("PUT", "/faults", self._set_faults),
                Route("DELETE", "/faults", self._clear_faults),
                *gateway.routes(),
                *self._supplier.routes(),
            ]
        )

    async def __call__(self, request: Request) -> Response | None:
        """Answer ``request``, or return ``None`` to hang up on it."""
        return await self._router(request)

    async def _health(self, _request: Request, _path: Mapping[str, str]) -> Response:
        self._database.row("SELECT 1")
        return json_response(200, {"status": "ok"})

    async def _ledger(self, _request: Request, _path: Mapping[str, str]) -> Response:
        rows = self._database.rows(
            "SELECT key, amount, currency, CASE WHEN amount_refunded = amount THEN 'refunded'"
            " ELSE status END AS status FROM charge ORDER BY seq"
        )
        charges = [dict(row) for row in rows]
        return json_response(200, {"charges": charges, "supplier_calls": self._supplier.calls()})

    async def _empty(self, request: Request, path: Mapping[str, str]) -> Response:
        """Forget all payments with their keys and counts; faults and snapshots stay."""
        with self._database.transaction():
            for table in ("charge", "refund", "intent", "answer", "counter"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608  # the names are ours
        return await self._ledger(request, path)

    async def _show_faults(self, _request: Request, _path: Mapping[str, str]) -> Response:
        return json_response(200, self._faults.show())

    async def _set_faults(self, request: Request, path: Mapping[str, str]) -> Response:
        try:
            self._faults.replace(read_json(request.body))
        except (BadBodyError, BadFaultsError) as error:
            return error_response(400, str(error))
        return await self._show_faults(request, path)

    async def _clear_faults(self, request: Request, path: Mapping[str, str]) -> Response:
        self._faults.clear()
        return await self._show_faults(request, path)
