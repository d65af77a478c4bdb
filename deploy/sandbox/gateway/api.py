"""The gateway's front: authentication, faults, idempotency keys, then the call itself."""

import asyncio
import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any

from deploy.sandbox.body import BadBodyError, read_json
from deploy.sandbox.database import Database
from deploy.sandbox.faults import MODES, NO_FAULT, Fault, Faults
from deploy.sandbox.gateway import records
from deploy.sandbox.gateway.calls import Action, Answer, Prepare, Read
from deploy.sandbox.gateway.errors import GatewayError
from deploy.sandbox.gateway.intents import Intents
from deploy.sandbox.gateway.keys import Keys
from deploy.sandbox.gateway.params import Params
from deploy.sandbox.gateway.refunds import Refunds
from deploy.sandbox.routing import Route, RouteHandler
from deploy.sandbox.server import Request, Response, error_response, json_response

_BROKEN = Answer(500, {"error": {"type": "api_error", "message": "The gateway failed on purpose."}})
#: Modes that mean something for a call that makes no new effect.
_TRANSPORT = {"slow", "drop_reply"}
_READING = _TRANSPORT | {"error"}


class Gateway:
    """``/gateway/v1/…`` and the control ``/gateway/forget``."""

    def __init__(self, database: Database, faults: Faults, search_lag: float) -> None:
        self._database = database
        self._faults = faults
        self._keys = Keys(database)
        self._intents = Intents(database, search_lag)
        self._refunds = Refunds(database)

    def routes(self) -> list[Route]:
        """The gateway's share of the sandbox's routes."""
        intents, refunds = self._intents, self._refunds
        writes: dict[str, Prepare] = {
            "payment_intents": intents.create,
            "payment_intents/{id}/confirm": intents.confirm,
            "payment_intents/{id}/cancel": intents.cancel,
            "refunds": refunds.create,
        }
        reads: dict[str, Read] = {
            "payment_intents": intents.list,
            "payment_intents/search": intents.search,
            "payment_intents/{id}": intents.retrieve,
            "charges/{id}": intents.charge,
            "refunds": refunds.list,
            "refunds/{id}": refunds.retrieve,
        }
        return [
            *(Route("POST", f"/gateway/v1/{path}", self._write(it)) for path, it in writes.items()),
            *(Route("GET", f"/gateway/v1/{path}", self._read(it)) for path, it in reads.items()),
            Route("POST", "/gateway/forget", self._forget),
        ]

    def _read(self, read: Read) -> RouteHandler:
        async def handle(request: Request, path: Mapping[str, str]) -> Response | None:
            request_id = records.new_id("req")
            try:
                _authenticate(request)
                fault = await self._meet(_READING, reading=True)
                if fault.mode == "drop_reply":
                    return None
                if fault.mode == "error":
                    return _response(_BROKEN, request_id)
                return _response(Answer(200, read(Params(request.query), path)), request_id)
            except GatewayError as error:
                return _response(_refusal(error), request_id)

        return handle

    def _write(self, prepare: Prepare) -> RouteHandler:
        async def handle(request: Request, path: Mapping[str, str]) -> Response | None:
            request_id = records.new_id("req")
            key = request.headers.get("idempotency-key") or None
            try:
                _authenticate(request)
                params = Params(request.body.decode("utf-8", "replace"))
                if key is not None:
                    stored = self._keys.find(key, request.path, params.fingerprint())
                    if stored is not None:
                        fault = await self._meet(_TRANSPORT)
                        if fault.mode == "drop_reply":
                            return None
                        marks = {
                            "Idempotency-Key": key,
                            "Original-Request": stored.request_id,
                            "Idempotent-Replayed": "true",
                            "Request-Id": request_id,
                        }
                        return Response(stored.status, stored.body, marks)
                action = prepare(params, path)
                return await self._execute(action, request, params, key, request_id)
            except GatewayError as error:
                return _response(_refusal(error), request_id, key)

        return handle

    async def _execute(
        self, action: Action, request: Request, params: Params, key: str | None, request_id: str
    ) -> Response | None:
        """Run a call whose key is new, and keep its answer whatever it is."""
        if key is not None:
            self._keys.begin(key)
        try:
            modes = set(MODES) if action.charges else set(MODES) - {"decline"}
            fault = await self._meet(modes)
            with self._database.transaction():
                answer = _BROKEN if fault.mode == "error" else _run(action, key, fault)
                if key is not None:
                    fingerprint = params.fingerprint()
                    self._keys.store(key, request.path, fingerprint, answer, request_id)
        finally:
            if key is not None:
                self._keys.end(key)
        return None if fault.mode == "drop_reply" else _response(answer, request_id, key)

    async def _meet(self, modes: Collection[str], *, reading: bool = False) -> Fault:
        fault = self._faults.draw("gateway", modes, reading=reading)
        if fault is not NO_FAULT:
            await asyncio.sleep(fault.delay_s)
        return fault

    async def _forget(self, request: Request, _path: Mapping[str, str]) -> Response:
        try:
            content = read_json(request.body or b"{}")
        except BadBodyError as error:
            return error_response(400, str(error))
        if not isinstance(content, dict) or not set(content) <= {"key"}:
            return error_response(400, 'The body must be {"key": "…"}, or {} for all keys.')
        return json_response(200, {"forgotten": self._keys.forget(content.get("key"))})


def _run(action: Action, key: str | None, fault: Fault) -> Answer:
    try:
        return action.run(key, fault.mode == "decline")
    except GatewayError as error:
        return _refusal(error)


def _refusal(error: GatewayError) -> Answer:
    return Answer(error.status, {"error": error.content})


def _response(answer: Answer, request_id: str, key: str | None = None) -> Response:
    headers: dict[str, Any] = {"Request-Id": request_id}
    if key is not None:
        headers["Idempotency-Key"] = key
    return json_response(answer.status, answer.content, headers)


def _authenticate(request: Request) -> None:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    key = credentials.strip()
    if scheme.lower() == "basic":
        try:
            key = base64.b64decode(key, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            key = ""
    elif scheme.lower() != "bearer":
        key = ""
    if not key:
        raise GatewayError(401, "No API key given. Send one as Bearer token or Basic user name.")
    if key.startswith(("sk_live_", "rk_live_")):
        # Whoever sends one here meant to send it to Stripe, or meant another key.
        raise GatewayError(401, "This is a sandbox; it takes no live key.")
