"""Problem objects (RFC 9457): the one form in which clients learn what went wrong.

``type`` is a stable name, not an address: programs compare it, people read ``detail``.
"""

from typing import Any

from operations.endings import Failure

Problem = dict[str, Any]


def type_of(name: str) -> str:
    """The stable type of a problem, e.g. ``urn:sekali:problem:out_of_stock``."""
    return f"urn:sekali:problem:{name}"


def of_refusal(code: str, detail: str) -> Problem:
    """The ``error`` of an operation that ended ``failed``."""
    return {
        "type": type_of(code),
        "title": code.replace("_", " ").capitalize(),
        "detail": detail,
        "category": "refused",
        "code": code,
    }


def of_failure(failure: Failure) -> Problem:
    """The ``error`` of an operation that ended ``dead``.

    What exactly happened is for operators, and stands in the dead letter.
    """
    return {
        "type": type_of("dead_letter"),
        "title": "Waits for review",
        "detail": "The operation could not be completed. An operator will look at it.",
        "category": str(failure.category.value),
    }


def of_revocation() -> Problem:
    """The ``error`` of an operation that ended ``cancelled`` by remote control."""
    return {
        "type": type_of("revoked"),
        "title": "Revoked",
        "detail": "An operator revoked the operation before it began.",
        "category": "revoked",
    }
