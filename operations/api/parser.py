"""JSON, read strictly: what two readers could understand differently is refused."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser

#: Nesting of arrays and objects; the outermost counts.
DEEPEST = 64
#: Digits of a whole number. Far beyond what any field takes, far below what costs time.
LONGEST_NUMBER = 100

#: What may stand behind the media type; a semicolon may end it.
_IGNORED_PARAMETERS = frozenset(
    ("", *(f"charset={name}" for name in ("utf-8", "utf8", '"utf-8"', '"utf8"')))
)


class StrictJSONParser(BaseParser):
    """An object in UTF-8, and nothing that PostgreSQL or another parser would stumble over."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        _parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """
        :raises UnsupportedMediaType: anything but JSON in UTF-8
        :raises ParseError: not a JSON object, or one that is ambiguous
        """
        if not _is_json(media_type or self.media_type):
            raise UnsupportedMediaType(media_type or "")
        return load(stream.read())


def _is_json(media_type: str) -> bool:
    """Without the wildcards that a client may put into Accept, but never into Content-Type."""
    name, *parameters = (part.strip().lower() for part in media_type.split(";"))
    return name == StrictJSONParser.media_type and all(
        parameter in _IGNORED_PARAMETERS for parameter in parameters
    )


def load(raw: bytes) -> dict[str, Any]:
    """
    :raises ParseError: see :class:`StrictJSONParser`
    """
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise ParseError("The body is not UTF-8.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise ParseError(f"The body is not JSON: {error.msg} at {where}.") from error
    except RecursionError as error:
        raise ParseError(_TOO_DEEP) from error
    if not isinstance(value, dict):
        raise ParseError("The body must be a JSON object.")
    for text in _texts(value):
        _check_text(text)
    return value


_TOO_DEEP = f"The body nests deeper than {DEEPEST} levels."


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) != len(members):
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise ParseError(f"The member {_shown(name)} stands twice in one object.")
            seen.add(name)
    return made


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ParseError(f"A number has more than {LONGEST_NUMBER} digits.")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ParseError(f"The number {_shown(text)} is too large.")
    return number


def _constant(name: str) -> float:
    raise ParseError(f"{name} is not JSON.")


def _texts(value: Any) -> Iterator[str]:
    """All strings and member names. A stack instead of recursion, since clients nest at will."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list):
            if depth > DEEPEST:
                raise ParseError(_TOO_DEEP)
            if isinstance(item, dict):
                yield from item
                item = item.values()
            stack += [(inner, depth + 1) for inner in item]


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise ParseError("A string contains the character NUL.")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ParseError("A string contains half of a surrogate pair.")


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 50 else text[:50] + "…")
