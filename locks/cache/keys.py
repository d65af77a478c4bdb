"""Keys that name everything a cached value depends on."""

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints
from urllib.parse import quote, unquote

from django.core.exceptions import ImproperlyConfigured

#: Longer keys are not cached: they come from clients that send what nobody else will ask for.
LONGEST = 512

_TEMPLATE = re.compile(r"(\{\w+\}(:\{\w+\})*)?", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is no whole number.")
    return int(value)


def _str(value: Any) -> str:
    # None must not be taken for "None", say as the name of a tenant.
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text.")
    return str.__str__(value)  # the plain one, also of a member of an enumeration


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


_TYPES: dict[type, Callable[[Any], Any]] = {int: _int, str: _str, uuid.UUID: _uuid}


class Keys:
    """Turns dimensions into a key and back.

    A key is ``name@revision:value:value``, each value quoted so that none can look like two.
    The template must name exactly the parameters of the loader: what is loaded cannot depend
    on something the key does not hold. Their types are ``int``, ``str`` or ``UUID``.

    :raises ImproperlyConfigured: the template and the loader do not fit
    """

    def __init__(
        self, name: str, revision: int, template: str, load: Callable[..., object]
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ImproperlyConfigured(f"Cache entry {name!r}: not a name like 'product-page'.")
        if not _TEMPLATE.fullmatch(template):
            raise ImproperlyConfigured(
                f"Cache entry {name!r}: key {template!r} is not like '{{owner}}:{{id}}'."
            )
        #: All keys of the entry begin with it; it is also the key of the entry's version.
        self.prefix = f"{name}@{revision}"
        hints = {what: of for what, of in get_type_hints(load).items() if what != "return"}
        self.dimensions = tuple(re.findall(r"\w+", template))
        if set(hints) != set(self.dimensions):
            raise ImproperlyConfigured(
                f"Cache entry {name!r}: the key has {sorted(self.dimensions)}, but what is "
                f"loaded depends on {sorted(hints)}."
            )
        try:
            self._types = [(dimension, _TYPES[hints[dimension]]) for dimension in self.dimensions]
        except KeyError as error:
            raise ImproperlyConfigured(
                f"Cache entry {name!r}: a dimension is int, str or UUID, not {error}."
            ) from None

    def converted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The dimensions in their types.

        :raises TypeError: one is missing, or is none of this entry's
        :raises ValueError: one is not of its type
        """
        if len(given) == len(self._types):
            try:
                return {dimension: convert(given[dimension]) for dimension, convert in self._types}
            except KeyError:
                pass
        raise TypeError(f"{self.prefix} takes {list(self.dimensions)}, not {sorted(given)}.")

    def rendered(self, dimensions: Mapping[str, Any]) -> str:
        """The key of converted dimensions."""
        values = [quote(str(dimensions[name]), safe="") for name in self.dimensions]
        return ":".join([self.prefix, *values])

    def parsed(self, key: str) -> dict[str, Any] | None:
        """The dimensions that a key was made of; None: it is none of this entry's."""
        prefix, *values = key.split(":")
        if prefix != self.prefix or len(values) != len(self._types):
            return None
        try:
            dimensions = {
                dimension: convert(unquote(value))
                for (dimension, convert), value in zip(self._types, values, strict=True)
            }
        except ValueError:
            return None
        return dimensions if self.rendered(dimensions) == key else None


def token_of(key: str) -> str:
    """The key that holds the token of whoever is filling ``key``."""
    return key + "!fill"


def name_of(key: str) -> str:
    """The name of the entry that a key belongs to."""
    return key.partition("@")[0]
