"""Reading the JSON bodies of the sandbox's controls."""

import json
from typing import Any


class BadBodyError(ValueError):
    """A body that cannot be read; the text says why."""


def read_json(body: bytes) -> Any:
    """The value in ``body``; raises :class:`BadBodyError` for anything but strict JSON."""
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadBodyError(f"The body must be JSON: {error}.") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
