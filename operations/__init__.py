"""Operations that happen once.

A domain app needs :func:`operation` to register a kind, the :class:`Claim` that its
handler is given, and the exceptions by which a handler says how an attempt went.
"""

from typing import TYPE_CHECKING, Any

from operations.errors import BadPayload, ClaimLost, DependencyError, NotReady, Refused

if TYPE_CHECKING:
    from operations.claim import Claim
    from operations.registry import operation

__all__ = [
    # registering a kind
    "Claim",
    "operation",
    # what a handler may raise
    "BadPayload",
    "ClaimLost",
    "DependencyError",
    "NotReady",
    "Refused",
]

_LAZY = {"Claim": "operations.claim", "operation": "operations.registry"}


def __getattr__(name: str) -> Any:
    """Late, because models can only be imported once Django has loaded the apps."""
    import importlib

    if name not in _LAZY:
        raise AttributeError(name)
    return getattr(importlib.import_module(_LAZY[name]), name)
