"""Errors in Stripe's shape."""

from collections.abc import Mapping
from typing import Any


class GatewayError(Exception):
    """An answer that is an error: ``status`` and the members of its ``error`` object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.content: dict[str, Any] = {"type": type_, "message": message, **(more or {})}
        if code is not None:
            self.content["code"] = code
        if param is not None:
            self.content["param"] = param


def missing(kind: str, identifier: str, *, param: str, status: int = 400) -> GatewayError:
    """Nothing of this ``kind`` has that id: 404 when the path named it, else 400."""
    return GatewayError(
        status, f"No such {kind}: '{identifier}'", code="resource_missing", param=param
    )


def unexpected_state(message: str, **more: Any) -> GatewayError:
    """The payment intent is not in a state that allows the call."""
    return GatewayError(400, message, code="payment_intent_unexpected_state", more=more)
