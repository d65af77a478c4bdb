"""The leases held now, for operators: to see which are old, and to free one by force."""

import logging
from collections.abc import Callable

from django.conf import settings

from locks.backend import Backend, HeldLease, Release
from locks.errors import LeaseError
from locks.selection import backend_for

log = logging.getLogger(__name__)

#: Says why a lease must not be taken from its holder, or None if it knows no reason.
Guard = Callable[[HeldLease], str | None]

_guards: list[Guard] = []


class LeaseInUse(LeaseError):
    """A forced release was refused: the work that the lease protects goes on."""


def register_guard(guard: Guard) -> Guard:
    """Have ``guard`` asked before every forced release. May be used as a decorator."""
    if guard not in _guards:
        _guards.append(guard)
    return guard


def held_leases(backend: Backend | str | None = None) -> list[HeldLease]:
    """All leases held now, the oldest first. Raises :class:`LeaseUnavailable`."""
    return sorted(backend_for(backend).held(), key=lambda lease: -lease.age)


def is_old(lease: HeldLease) -> bool:
    """Whether it is held for longer than ``settings.LOCKS_OLD_AFTER`` seconds (default 300)."""
    return lease.age > float(getattr(settings, "LOCKS_OLD_AFTER", 300))


def why_not(lease: HeldLease) -> str | None:
    """Why a guard would refuse to free this lease by force; None if none would."""
    return next((reason for guard in _guards if (reason := guard(lease))), None)


def force_release(
    key: str,
    *,
    by: str,
    reason: str,
    owner: str | None = None,
    backend: Backend | str | None = None,
) -> HeldLease | None:
    """Free ``key`` whoever holds it, or only if ``owner`` does; return who did.

    ``by`` and ``reason`` are for the log. Only the holder that the guards were asked about
    loses it: if nobody held the lease, or another has come meanwhile, nothing happens and
    None is returned.

    Raises :class:`LeaseInUse` when a guard refuses, :class:`ValueError` without a reason,
    :class:`LeaseUnavailable`.
    """
    if not reason.strip():
        raise ValueError("A forced release needs a reason.")
    store = backend_for(backend)
    lease = next((lease for lease in store.held() if lease.key == key), None)
    if lease is None or owner not in (None, lease.owner):
        return None
    if objection := why_not(lease):
        log.warning("Refused to free %s for %s (%s): %s", key, by, reason, objection)
        raise LeaseInUse(objection)
    if store.release(key, lease.owner) is not Release.DONE:
        return None
    log.warning(
        "Freed the lease on %s by force: held by %s (pid %d on %s) for %.0f s; by %s, reason: %s",
        key,
        lease.owner,
        lease.pid,
        lease.host,
        lease.age,
        by,
        reason,
    )
    return lease
