"""What a kind of operation declares that it invalidates."""

import string
from collections.abc import Mapping
from typing import Any

from locks.cache.keys import Keys


class Target:
    """A key with holes: ``PRODUCT.on(sku="{sku}")``.

    The holes are fields of the operation's payload, its ``owner`` and its ``id``.
    """

    def __init__(
        self, entry: str, keys: Keys, templates: Mapping[str, str], invalidated_by: list[str]
    ) -> None:
        """
        :raises TypeError: a dimension of the entry is missing, or one is none of it
        """
        if set(templates) != set(keys.dimensions):
            raise TypeError(
                f"Cache entry {entry!r} has {list(keys.dimensions)}, not {sorted(templates)}."
            )
        self._keys = keys
        self._templates = dict(templates)
        self._invalidated_by = invalidated_by

    @property
    def fields(self) -> set[str]:
        """The holes."""
        return {
            name
            for template in self._templates.values()
            for _, name, _, _ in string.Formatter().parse(template)
            if name is not None
        }

    def key(self, fields: Mapping[str, Any]) -> str:
        """The key for one operation."""
        dimensions = {name: template.format(**fields) for name, template in self._templates.items()}
        return self._keys.rendered(self._keys.converted(dimensions))

    def declared_by(self, kind: str) -> None:
        """Have the list of entries say that this kind of operation invalidates it."""
        if kind not in self._invalidated_by:
            self._invalidated_by.append(kind)
