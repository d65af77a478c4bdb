"""Form parameters as Stripe encodes them: ``metadata[operation_id]=…``, ``expand[0]=…``."""

import hashlib
import json
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from deploy.sandbox.gateway.errors import GatewayError

_NAME = re.compile(r"(?P<top>[^\[\]]+)(?P<rest>(\[[^\[\]]*\])*)")


class Params:
    """Parameters of one call, from its query string or its form body.

    Readers raise :class:`GatewayError` (400, naming the parameter) for bad values.
    """

    def __init__(self, encoded: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(encoded, keep_blank_values=True):
            if not _NAME.fullmatch(name):
                raise GatewayError(400, f"Invalid parameter name: {name}", param=name)
            if name.endswith("[]"):
                taken = sum(known.startswith(name[:-1]) for known in self._values)
                self._values[f"{name[:-1]}{taken}]"] = value
            else:
                self._values[name] = value

    def fingerprint(self) -> str:
        """Equal for equal parameters, whatever their order."""
        return hashlib.sha256(json.dumps(sorted(self._values.items())).encode()).hexdigest()

    def only(self, *names: str) -> None:
        """Refuse any parameter that is not one of ``names``."""
        for full in self._values:
            top = full.partition("[")[0]
            if top not in names:
                raise GatewayError(
                    400,
                    f"Received unknown parameter: {full}",
                    code="parameter_unknown",
                    param=full,
                )

    def text(self, name: str) -> str | None:
        """The value, or ``None`` when it is absent or empty."""
        return self._values.get(name) or None

    def needed(self, name: str) -> str:
        """The value, which has to be there."""
        value = self.text(name)
        if value is None:
            raise GatewayError(
                400, f"Missing required param: {name}.", code="parameter_missing", param=name
            )
        return value

    def whole(self, name: str, *, least: int, most: int) -> int | None:
        """A whole number within bounds, or ``None`` when absent."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise GatewayError(
                400, f"Invalid integer: {value}", code="parameter_invalid_integer", param=name
            )
        number = int(value)
        if not least <= number <= most:
            raise GatewayError(400, f"{name} must be from {least} to {most}.", param=name)
        return number

    def flag(self, name: str) -> bool:
        """``true`` or ``false``; absent counts as ``false``."""
        value = self.text(name)
        if value not in {None, "true", "false"}:
            raise GatewayError(400, f"Invalid boolean: {value}", param=name)
        return value == "true"

    def mapping(self, name: str) -> Mapping[str, str]:
        """The members ``name[…]``."""
        start = f"{name}["
        return {
            full[len(start) : -1]: value
            for full, value in self._values.items()
            if full.startswith(start)
        }

    def expands(self, *names: str) -> bool:
        """Whether ``expand`` names one of ``names``; anything else in it is refused."""
        wanted = set(self.mapping("expand").values())
        if not wanted <= set(names):
            raise GatewayError(
                400, f"This property cannot be expanded ({', '.join(wanted)}).", param="expand"
            )
        return bool(wanted)
