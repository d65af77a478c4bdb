"""Lists, newest first, paged by the id of the last object seen."""

import sqlite3
from collections.abc import Callable
from typing import Any

from deploy.sandbox.database import Database
from deploy.sandbox.gateway.errors import missing
from deploy.sandbox.gateway.params import Params

#: The parameters that every list takes.
PARAMS = ("limit", "starting_after", "created", "expand")
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_FAR = 10**12


def page(
    database: Database,
    table: str,
    params: Params,
    render: Callable[[sqlite3.Row], dict[str, Any]],
    *,
    url: str,
    where: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """One page of ``table``; ``where`` is a column and the value it must have.

    ``created`` is compared in whole seconds, as the objects show it.
    """
    conditions, values = ["1"], list[object]()
    if where is not None:
        conditions.append(f"{where[0]} = ?")
        values.append(where[1])
    for name, operator in _COMPARISONS.items():
        bound = params.whole(f"created[{name}]", least=0, most=_FAR)
        if bound is not None:
            conditions.append(f"CAST(created AS INTEGER) {operator} ?")
            values.append(bound)
    after = params.text("starting_after")
    if after is not None:
        last = database.row(f"SELECT seq FROM {table} WHERE id = ?", after)  # noqa: S608
        if last is None:
            raise missing(table, after, param="starting_after")
        conditions.append("seq < ?")
        values.append(last["seq"])
    limit = params.whole("limit", least=1, most=100) or 10
    rows = database.rows(
        f"SELECT * FROM {table} WHERE {' AND '.join(conditions)} "  # noqa: S608  # own words
        "ORDER BY seq DESC LIMIT ?",
        *values,
        limit + 1,
    )
    return {
        "object": "list",
        "data": [render(row) for row in rows[:limit]],
        "has_more": len(rows) > limit,
        "url": url,
    }
