"""Typed readers for environment variables.

Every reader raises :class:`django.core.exceptions.ImproperlyConfigured` with the
name of the variable and the form it should have, so that a typing error stops the
process at start-up instead of surfacing as a wrong default hours later.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")

_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def text(name: str, default: str = "") -> str:
    """The variable as it is; an empty one counts as not set."""
    return _read(name, default, str, "text")


def flag(name: str, default: bool) -> bool:
    """``1``/``true``/``yes`` or ``0``/``false``/``no``."""
    return _read(name, default, lambda raw: _BOOLEANS[raw.lower()], "one of 1, 0, true, false")


def whole(name: str, default: int, *, least: int = 0) -> int:
    """A whole number not below ``least``."""
    return _read(name, default, lambda raw: _bounded(int(raw), least), f"a whole number >= {least}")


def seconds(name: str, default: float) -> float:
    """A duration in seconds, above zero."""
    return _read(name, default, _positive, "a number of seconds above 0")


def seconds_list(name: str, default: tuple[float, ...]) -> tuple[float, ...]:
    """Durations in seconds separated by commas, e.g. ``5,15,45,120``."""
    return _read(
        name,
        default,
        lambda raw: tuple(_positive(part) for part in raw.split(",")),
        "seconds separated by commas",
    )


def words(name: str, default: list[str]) -> list[str]:
    """Words separated by commas; blanks around them do not count."""
    return _read(
        name,
        default,
        lambda raw: [part.strip() for part in raw.split(",") if part.strip()],
        "words",
    )


def database(name: str, default: str) -> dict[str, Any]:
    """``postgresql://user:password@host:port/name?option=value`` as Django's settings.

    A socket directory may stand in the ``host`` option, as libpq allows.
    """
    return _read(name, _database(default), _database, "postgresql://user@host:port/name")


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.path.strip("/"):
        raise ValueError(url)
    options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": options.pop("port", "") or str(parts.port or ""),
        "OPTIONS": options,
    }


def _read(name: str, default: T, parse: Callable[[str], T], form: str) -> T:
    raw = os.environ.get(name, "")
    if raw == "":
        return default
    try:
        return parse(raw)
    except (ValueError, KeyError) as error:
        # The value itself may hold a password, so it is not repeated.
        raise ImproperlyConfigured(f"Environment variable {name} must be {form}.") from error


def _bounded(number: int, least: int) -> int:
    if number < least:
        raise ValueError(number)
    return number


def _positive(raw: str) -> float:
    number = float(raw)
    if not 0 < number < float("inf"):
        raise ValueError(raw)
    return number
