"""The closed set of ways in which an attempt ends."""

from dataclasses import dataclass
from typing import Any

from operations.outcomes import Category


@dataclass(frozen=True)
class Failure:
    """What went wrong, for the attempt row and the dead letter."""

    category: Category
    error_type: str
    message: str
    traceback: str = ""
    dependency: str = ""
    signature: str = ""


@dataclass(frozen=True)
class Done:
    """The effect is there."""

    result: Any


@dataclass(frozen=True)
class Refusal:
    """A business answer; final."""

    code: str
    detail: str


@dataclass(frozen=True)
class Retry:
    """Failed, counted, to be tried again after ``delay`` seconds."""

    failure: Failure
    delay: float


@dataclass(frozen=True)
class Defer:
    """Not now, uncounted. ``began`` tells whether the handler had started."""

    delay: float
    why: str
    began: bool


@dataclass(frozen=True)
class Dead:
    """Given up; an operator must act."""

    failure: Failure


@dataclass(frozen=True)
class Lost:
    """Somebody else has the operation now; nothing was written."""


Ending = Done | Refusal | Retry | Defer | Dead
