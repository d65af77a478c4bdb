"""Calls to a store, and what is done when an answer is lost."""

from collections.abc import Callable
from typing import TypeVar

from locks import counts
from locks.backend import Backend, Release
from locks.errors import LeaseUnavailable
from locks.selection import backend_for

T = TypeVar("T")


def twice(attempt: Callable[[], T]) -> T:
    """Try once more after a lost connection or answer: nothing here does harm twice."""
    try:
        return attempt()
    except LeaseUnavailable as error:
        if error.answered:
            raise
    return attempt()


def release(key: str, owner: str, *, backend: Backend | str | None = None) -> bool:
    """Free ``key`` if ``owner`` holds it: for whoever cleans up after a holder that died.

    Returns whether it did. Raises :class:`LeaseUnavailable`.
    """
    found, again = release_from(backend_for(backend), key, owner)
    return found is Release.DONE or (found is Release.ABSENT and again)


def release_from(backend: Backend, key: str, owner: str) -> tuple[Release, bool]:
    """What was found, and whether that was at a second try."""
    tries = 0

    def attempt() -> Release:
        nonlocal tries
        tries += 1
        return backend.release(key, owner)

    try:
        found = twice(attempt)
    except LeaseUnavailable:
        counts.add("release_failed")
        raise
    if found is Release.FOREIGN:
        counts.add("release_mismatched")
    return found, tries > 1
