"""The lease itself: what its holder may do."""

import logging
import math
import secrets
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from django.db import connections

from locks import clock, counts
from locks.attempts import release_from, twice
from locks.backend import Backend, Claim, Held, Release
from locks.errors import LeaseError, LeaseHeld, LeaseLost, LeaseUnavailable
from locks.holding import Holding
from locks.renewer import Renewer
from locks.selection import backend_for

log = logging.getLogger(__name__)

#: Bounds of a TTL in seconds. A lease is for work going on now, not a state of things.
SHORTEST, LONGEST = 0.001, 86_400.0

_TAKEN = "the store has it no more or has another owner for it"


class Lease:
    """The right to work on ``key`` alone, for ``ttl`` seconds at a time.

    As a context manager it renews itself and is released at the end::

        with Lease("report:42", ttl=30, wait=5) as lease:
            for row in rows:
                lease.check()          # raises LeaseLost once the lease has ended
                fenced_update(Report.objects.filter(pk=42), lease.fence, body=row.body)

    ``key``: 1 to 512 bytes. ``ttl``: seconds, from a millisecond to a day. ``owner``: the
    token by which the holder is known; a random one if None. ``wait``: how many seconds
    ``acquire()`` waits for another holder. ``fenced``: whether a durable fence is taken;
    None means yes, unless the caller names the owner, for such a caller has its own.
    ``on_lost`` is called once for each loss, from whichever thread notices it.

    One object may be used by several threads (one that works, one that renews), but it is
    one holder. A forked child holds nothing of its parent's.

    Raises :class:`ValueError` for a key, TTL, owner or wait that is not possible.
    """

    def __init__(
        self,
        key: str,
        *,
        ttl: float,
        owner: str | None = None,
        backend: Backend | str | None = None,
        wait: float = 0,
        fenced: bool | None = None,
        on_lost: "Callable[[Lease], object] | None" = None,
    ) -> None:
        if not 1 <= len(key.encode()) <= 512 or "\0" in key:
            raise ValueError("A lease's key must have 1 to 512 bytes, none of them NUL.")
        if not SHORTEST <= ttl <= LONGEST:
            raise ValueError("A lease's TTL must be between a millisecond and a day.")
        if not 0 <= wait < math.inf:
            raise ValueError("The wait for a lease must be a number of seconds, not below 0.")
        if owner == "":
            raise ValueError("A lease's owner must not be empty.")
        self.key = key
        self.ttl = ttl
        self.wait = wait
        self._fenced = owner is None if fenced is None else fenced
        self._named_owner = owner
        self._backend = backend_for(backend)
        self._on_lost = on_lost
        self._start()

    def _start(self) -> None:
        # The token exists before the first call, so that a lost answer changes nothing.
        self._owner = self._named_owner or _new_owner()
        self._holding = Holding(self.key, self._on_lost and self._tell_loss)
        self._release_failed = False
        # One call at a time, so that a renewal cannot find the key just released.
        self._turn = threading.Lock()

    def _tell_loss(self) -> None:
        if self._on_lost is not None:
            self._on_lost(self)

    # --- what the holder can ask --------------------------------------------------------

    @property
    def owner(self) -> str:
        """The token that stands for this holder in the store."""
        return self._owner

    @property
    def fence(self) -> int:
        """Greater than every fence given out before, for any key; 0 without a fence."""
        return self._holding.fence

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was released. Stays true until the next acquire.

        Judged by this process's clock alone, so it is right also after the process was
        stopped, or when nobody could renew.
        """
        return self._holding.lost

    @property
    def held(self) -> bool:
        """Whether this process holds the lease at this instant."""
        return self._holding.held

    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0.0 if it is not held."""
        return self._holding.remaining()

    def check(self) -> None:
        """Raise :class:`LeaseLost` unless the lease is held at this instant."""
        if not self.held:
            why = self._holding.why_not()
            raise LeaseLost(f"The lease on {self.key!r} is not held: {why}.")

    # --- acquire, renew, release --------------------------------------------------------

    def acquire(self) -> bool:
        """Take the lease; False if somebody else still holds it when the wait is over.

        One round trip when the lease is free. After :class:`LeaseUnavailable` the lease
        may have been taken all the same: call ``acquire()`` again, or ``release()``.
        Raises :class:`LeaseError` if this object holds the lease already.
        """
        if self._holding.foreign:
            if self._named_owner is not None and self._holding.begun:
                raise LeaseError(f"The owner of {self.key!r} is the parent process.")
            # Also when nothing was asked for yet: one token in two children lets both in.
            self._start()
        with self._turn:
            if self.held:
                raise LeaseError(f"The lease on {self.key!r} is held already.")
            if self._holding.released and self._named_owner is None:
                self._owner = _new_owner()
            return self._acquire()

    def _acquire(self) -> bool:
        began = clock.now()
        left = self.wait
        waited = False
        try:
            while (rival := self._try(left)) and left > 0:
                waited = True
                self._backend.wait(self._claim(), rival, left)
                left = self.wait - (clock.now() - began)
                if left < SHORTEST:
                    left = 0  # the last try, which also ends the waiting in the store
        except BaseException as error:
            if isinstance(error, LeaseUnavailable):
                counts.add("unavailable")
            if waited:
                self._leave()
            raise
        counts.add("refused" if rival else "acquired")
        if waited:
            counts.add("waited")
            counts.add("waited_ms", int((clock.now() - began) * 1000))
        return rival is None

    def _try(self, wait: float) -> Held | None:
        """One call to the store; None when the lease was granted."""
        self._holding.ask()
        sent = clock.now()
        answer = twice(lambda: self._backend.acquire(self._claim(), fenced=self._fenced, wait=wait))
        if isinstance(answer, Held):
            self._holding.refuse()
            return answer
        self._release_failed = False
        if not self._holding.grant(answer.fence, sent + _safe(self.ttl)):
            raise LeaseUnavailable(f"The lease on {self.key!r} was granted too late to be used.")
        return None

    def _leave(self) -> None:
        try:
            self._backend.leave(self._claim())
        except LeaseUnavailable:
            log.debug("Still listed as waiting for %s until the wait would have ended.", self.key)

    def renew(self) -> None:
        """Set the lease's end to ``ttl`` seconds from now.

        Raises :class:`LeaseLost` if it ended or was taken away, without asking the store
        when this process's clock says so; :class:`LeaseUnavailable` if the store did not
        answer, and then the lease is still held until ``remaining()`` is 0.
        """
        self.check()
        with self._turn:
            self.check()
            sent = clock.now()
            try:
                (kept,) = twice(lambda: self._backend.renew([self._claim()]))
            except LeaseUnavailable:
                counts.add("unavailable")
                raise
            self._renewed(sent, kept)
        self.check()

    def _renewed(self, sent: float, kept: bool) -> None:
        if kept:
            self._holding.extend(sent + _safe(self.ttl))
        else:
            self._holding.lose(_TAKEN, "lost_taken")

    def release(self) -> bool:
        """Give the lease back; True if it was this holder's until now.

        False: it was not held, had been lost, or belongs to the parent process. May be
        called again; after :class:`LeaseUnavailable` it should be, or the lease stays until
        its TTL is over.
        """
        if self._holding.foreign:
            return False
        with self._turn:
            if not self._holding.begun:
                return False
            lost, in_time = self.lost, self.held
            try:
                found, again = release_from(self._backend, self.key, self._owner)
            except LeaseUnavailable:
                self._release_failed = True
                raise
            # Gone at a second try, within its time: the first one did it.
            done_before = found is Release.ABSENT and in_time and (again or self._release_failed)
            if in_time and not done_before and found is not Release.DONE:
                self._holding.lose(_TAKEN, "lost_taken")
            self._holding.give_back()
        return not lost and (done_before or found is Release.DONE)

    # --- as a context manager -----------------------------------------------------------

    def __enter__(self) -> Self:
        """Acquire and keep renewed. Raises :class:`LeaseHeld`, :class:`LeaseUnavailable`."""
        try:
            acquired = self.acquire()
        except BaseException:
            # An answer may have been lost, or a time limit struck in the midst of the call.
            self._release_quietly()
            raise
        if not acquired:
            raise LeaseHeld(f"Somebody else holds the lease on {self.key!r}.")
        RENEWER.watch(self, self.ttl / _RENEWALS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release. Raises :class:`LeaseLost` if the body ended well but the lease had not."""
        RENEWER.forget(self)
        self._release_quietly()
        if kind is None and self.lost:
            why = self._holding.why_not()
            raise LeaseLost(f"The lease on {self.key!r} ended before the work did: {why}.")

    def _release_quietly(self) -> None:
        try:
            self.release()
        except LeaseUnavailable as error:
            log.warning("The lease on %s stays until its TTL is over: %s", self.key, error)

    def _claim(self) -> Claim:
        return Claim(self.key, self._owner, self.ttl)

    def __repr__(self) -> str:
        return f"<Lease {self.key!r} {self._holding} owner={self._owner!r}>"


def _safe(ttl: float) -> float:
    """Less than the TTL by what the two clocks may drift apart, and by Redis's rounding."""
    return ttl - 0.01 * ttl - min(0.002, 0.1 * ttl)


def _new_owner() -> str:
    return secrets.token_hex(16)


# --- renewing by itself -----------------------------------------------------------------

#: A lease is renewed this many times per TTL, and after a failure four times as often.
_RENEWALS = 3


def _renew_together(leases: list[Lease]) -> list[tuple[Lease, float | None]]:
    """Renew all in one round trip for each backend.

    Returns for each in how many seconds it is due again; None when it is lost.
    """
    by_backend: dict[int, list[Lease]] = {}
    for lease in leases:
        by_backend.setdefault(id(lease._backend), []).append(lease)
    renewed: set[Lease] = set()
    for group in by_backend.values():
        # A lease whose turn is taken is being released or renewed already.
        ours = [lease for lease in group if lease._turn.acquire(blocking=False)]
        try:
            held = [lease for lease in ours if lease.held]
            if held and _renew_group(held):
                renewed.update(held)
        finally:
            for lease in ours:
                lease._turn.release()
    return [(lease, _due_in(lease, lease in renewed)) for lease in leases]


def _renew_group(leases: list[Lease]) -> bool:
    backend, claims = leases[0]._backend, [lease._claim() for lease in leases]
    sent = clock.now()
    try:
        kept = twice(lambda: backend.renew(claims))
    except LeaseUnavailable as error:
        counts.add("unavailable")
        log.warning("%d leases were not renewed, trying again: %s", len(leases), error)
        return False
    for lease, still_ours in zip(leases, kept, strict=True):
        lease._renewed(sent, still_ours)
    return True


def _due_in(lease: Lease, renewed: bool) -> float | None:
    if not lease.held:
        return None
    left, pace = lease.remaining(), lease.ttl / _RENEWALS
    if renewed:
        # Counted from the request, not from the answer: an answer that had to wait for a
        # busy interpreter is followed by the next request at once.
        return max(0.0, left - (lease.ttl - pace))
    return min(pace / 4, left)


# A backend in the database has given the thread a connection of its own.
RENEWER: Renewer[Lease] = Renewer(_renew_together, clear_up=connections.close_all)
