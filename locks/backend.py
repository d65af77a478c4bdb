"""What a store of leases must be able to do.

A backend keeps no state of a lease: that is :class:`locks.Lease`'s. Each method is one
attempt, which the caller may repeat: the store must not be changed twice by that.
Every method raises :class:`locks.LeaseUnavailable` when the store does not answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's wish for one key. ``ttl`` is in seconds."""

    key: str
    owner: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim holds the key. ``fence`` is 0 when none was asked for."""

    fence: int


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else has the key, for ``remaining`` seconds if it is not renewed."""

    remaining: float
    waiting: int


class Release(Enum):
    """What a release found."""

    DONE = "the key was the owner's and is free now"
    ABSENT = "nobody held the key"
    FOREIGN = "somebody else holds the key"


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as the store knows it, for operators. ``age`` and ``remaining`` in seconds."""

    key: str
    owner: str
    host: str
    pid: int
    process: str
    fence: int
    age: float
    remaining: float


class Backend(Protocol):
    def acquire(self, claim: Claim, *, fenced: bool, wait: float) -> Granted | Held:
        """Take the key if it is free or already the claim's own.

        ``wait`` is how many seconds the caller means to wait when it is refused; zero
        takes it off the list of waiters.
        """

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Set the whole TTL again, for each claim that still holds its key."""

    def release(self, key: str, owner: str) -> Release:
        """Free the key if ``owner`` holds it, and wake one waiter."""

    def wait(self, claim: Claim, held: Held, seconds: float) -> None:
        """Return when another try is worth while, after at most about ``seconds``."""

    def leave(self, claim: Claim) -> None:
        """The claim waits no longer."""

    def held(self) -> Iterator[HeldLease]:
        """All leases held now, in no order."""

    def counts(self) -> dict[str, int]:
        """The counters (``locks/counts.py``) of all processes, as far as they were sent."""
