"""The supplier: what each user owns according to somebody else, in pages."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from deploy.sandbox.body import BadBodyError, read_json
from deploy.sandbox.database import Database
from deploy.sandbox.faults import MODES, Faults
from deploy.sandbox.routing import Route
from deploy.sandbox.server import Request, Response, error_response, json_response

#: What a user owns about whom nothing was set.
DEFAULT_REVISION = 1
DEFAULT_ITEMS: Sequence[Mapping[str, Any]] = (
    {"sku": "sku-1", "quantity": 1},
    {"sku": "sku-scarce", "quantity": 1},
)
DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000


class Supplier:
    """``GET /supplier/users/{user}/items`` and the ``PUT`` that sets what it tells.

    Every page carries the revision of the snapshot in force when it was read, so a caller
    who sees two revisions in one fetch has mixed two snapshots.
    """

    def __init__(self, database: Database, faults: Faults) -> None:
        self._database = database
        self._faults = faults

    def routes(self) -> list[Route]:
        """The supplier's share of the sandbox's routes."""
        return [
            Route("GET", "/supplier/users/{user}/items", self._items),
            Route("PUT", "/supplier/users/{user}", self._set),
        ]

    def calls(self) -> int:
        """How often items were asked for since the ledger was emptied."""
        row = self._database.row("SELECT value FROM counter WHERE name = 'supplier_calls'")
        return row["value"] if row else 0

    async def _items(self, request: Request, path: Mapping[str, str]) -> Response | None:
        self._count()
        try:
            page, size = _page(request.query)
        except ValueError as error:
            return error_response(400, str(error))
        fault = self._faults.draw("supplier", MODES)
        await asyncio.sleep(fault.delay_s)
        if fault.mode == "error":
            return error_response(500, "The supplier failed on purpose.")
        if fault.mode == "decline":
            return error_response(403, "The supplier declines to answer for this user.")
        if fault.mode == "drop_reply":
            return None
        revision, items = self._snapshot(path["user"])
        shown = items[(page - 1) * size : page * size]
        following = page + 1 if page * size < len(items) else None
        return json_response(200, {"revision": revision, "items": shown, "next": following})

    async def _set(self, request: Request, path: Mapping[str, str]) -> Response:
        try:
            revision, items = _read_snapshot(read_json(request.body))
        except BadBodyError as error:
            return error_response(400, str(error))
        self._database.execute(
            "INSERT OR REPLACE INTO snapshot (user, revision, items) VALUES (?, ?, ?)",
            path["user"],
            revision,
            json.dumps(items),
        )
        return json_response(200, {"revision": revision, "items": items})

    def _snapshot(self, user: str) -> tuple[int, Sequence[Mapping[str, Any]]]:
        row = self._database.row("SELECT revision, items FROM snapshot WHERE user = ?", user)
        if row is None:
            return DEFAULT_REVISION, DEFAULT_ITEMS
        return row["revision"], json.loads(row["items"])

    def _count(self) -> None:
        self._database.execute(
            "INSERT INTO counter (name, value) VALUES ('supplier_calls', 1) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1"
        )


def _page(query: str) -> tuple[int, int]:
    values = dict(parse_qsl(query, keep_blank_values=True))
    numbers = []
    for name, default, most in (
        ("page", 1, 1_000_000),
        ("page_size", DEFAULT_PAGE_SIZE, LARGEST_PAGE_SIZE),
    ):
        given = values.pop(name, str(default))
        if not (re.fullmatch(r"[0-9]{1,7}", given) and 1 <= int(given) <= most):
            raise ValueError(f"{name} must be a whole number from 1 to {most}.")
        numbers.append(int(given))
    if values:
        raise ValueError(f"Unknown parameter: {next(iter(values))}.")
    return numbers[0], numbers[1]


def _read_snapshot(content: Any) -> tuple[int, list[dict[str, Any]]]:
    if not isinstance(content, dict) or set(content) != {"revision", "items"}:
        raise BadBodyError("The body must be an object with revision and items.")
    revision, items = content["revision"], content["items"]
    if not _is_whole(revision):
        raise BadBodyError("revision must be a whole number, 0 or above.")
    if not isinstance(items, list) or not all(_is_item(item) for item in items):
        raise BadBodyError('items must be a list of {"sku": text, "quantity": whole number}.')
    if len({item["sku"] for item in items}) < len(items):
        raise BadBodyError("Each sku may be listed once.")
    return revision, items


def _is_item(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and set(item) == {"sku", "quantity"}
        and isinstance(item["sku"], str)
        and item["sku"] != ""
        and _is_whole(item["quantity"])
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
