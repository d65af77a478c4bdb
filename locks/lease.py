"""The lease itself: what its holder knows and may do."""

import logging
import math
import os
import secrets
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self, TypeVar

from django.db import connections

from locks import clock, counts
from locks.backend import Backend, Claim, Granted, Held, Release
from locks.errors import LeaseError, LeaseHeld, LeaseLost, LeaseUnavailable
from locks.renewer import Renewer
from locks.selection import backend_for

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Bounds of a TTL in seconds. A lease is for work going on now, not a state of things.
SHORTEST, LONGEST = 0.001, 86_400.0


class _State(Enum):
    FREE = "not asked for, or refused"
    UNSURE = "asked for, without an answer"
    HELD = "granted"
    LOST = "granted, and ended before it was released"
    RELEASED = "granted and given back"


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
    ``on_lost`` is called once, from whichever thread notices the loss.

    One object may be used by several threads (one that works, one that renews), but it is
    one holder. A forked child holds nothing of its parent's.

    Raises :class:`ValueError` for a key, TTL or wait that is not possible.
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
        self._owner = owner or _new_owner()
        self._backend = backend_for(backend)
        self._on_lost = on_lost
        self._start(os.getpid())

    def _start(self, pid: int) -> None:
        self._pid = pid
        self._state = _State.FREE
        self._deadline = 0.0
        self._fence = 0
        self._loss = ""
        self._release_failed = False
        # One round trip at a time, so that a renewal cannot find the key just released.
        self._turn = threading.Lock()
        self._latch = threading.Lock()

    # --- what the holder can ask --------------------------------------------------------

    @property
    def owner(self) -> str:
        """The token that stands for this holder at the server."""
        return self._owner

    @property
    def fence(self) -> int:
        """Greater than every fence given out before, for any key; 0 without a fence."""
        return self._fence

    @property
    def lost(self) -> bool:
        """Whether the lease ended while it was in use. Once true, it stays true.

        Judged by this process's clock alone, so it is right also after the process was
        stopped, or when nobody could renew.
        """
        if os.getpid() != self._pid:
            return self._state in (_State.UNSURE, _State.HELD, _State.LOST)
        if self._state is _State.HELD and clock.now() >= self._deadline:
            self._lose("its time ran out", "lost_expired")
        return self._state is _State.LOST

    @property
    def held(self) -> bool:
        """Whether this process holds the lease at this instant."""
        return not self.lost and self._state is _State.HELD

    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0.0 if it is not held."""
        return max(0.0, self._deadline - clock.now()) if self.held else 0.0

    def check(self) -> None:
        """Raise :class:`LeaseLost` unless the lease is held at this instant."""
        if not self.held:
            raise LeaseLost(f"The lease on {self.key!r} is not held: {self._why_not()}.")

    # --- acquire, renew, release --------------------------------------------------------

    def acquire(self) -> bool:
        """Take the lease; False if somebody else still holds it when the wait is over.

        One round trip when the lease is free. After :class:`LeaseUnavailable` the lease
        may have been taken all the same: call ``acquire()`` again, or ``release()``.
        Raises :class:`LeaseError` if this object holds the lease already.
        """
        if os.getpid() != self._pid:
            self._begin_in_child()
        with self._turn:
            if self.held:
                raise LeaseError(f"The lease on {self.key!r} is held already.")
            if self._state is _State.RELEASED and self._named_owner is None:
                self._owner = _new_owner()
            return self._acquire()

    def _begin_in_child(self) -> None:
        if self._named_owner is not None and self._state is not _State.FREE:
            raise LeaseError(f"The owner of {self.key!r} is the parent process.")
        # The same token in two children would let both in.
        self._owner = self._named_owner or _new_owner()
        self._start(os.getpid())

    def _acquire(self) -> bool:
        began = clock.now()
        wait = self.wait
        waited = False
        try:
            while True:
                answer = self._try(wait)
                if answer is None or wait <= 0:
                    break
                waited = True
                self._backend.wait(self._claim(), answer, wait)
                wait = max(0.0, self.wait - (clock.now() - began))
                if wait < 0.001:
                    wait = 0.0
        except BaseException as error:
            if isinstance(error, LeaseUnavailable):
                counts.add("unavailable")
            if waited:
                self._leave()
            raise
        counts.add("refused" if answer else "acquired")
        if waited:
            counts.add("waited")
            counts.add("waited_ms", int((clock.now() - began) * 1000))
        return answer is None

    def _try(self, wait: float) -> Held | None:
        """One call to the server; None when the lease was granted."""
        self._state = _State.UNSURE
        self._loss = ""
        sent = clock.now()
        answer = _twice(
            lambda: self._backend.acquire(self._claim(), fenced=self._fenced, wait=wait)
        )
        if isinstance(answer, Held):
            self._state = _State.FREE
            return answer
        self._granted(answer, sent)
        return None

    def _granted(self, answer: Granted, sent: float) -> None:
        self._fence = answer.fence
        self._release_failed = False
        self._deadline = sent + _safe(self.ttl)
        self._state = _State.HELD
        if self.lost:
            raise LeaseUnavailable(f"The lease on {self.key!r} was granted too late to be used.")

    def _leave(self) -> None:
        try:
            self._backend.leave(self._claim())
        except LeaseUnavailable:
            log.debug("Still listed as waiting for %s until the wait would have ended.", self.key)

    def renew(self) -> None:
        """Set the lease's end to ``ttl`` seconds from now.

        Raises :class:`LeaseLost` if it ended or was taken away, without asking the server
        when this process's clock says so; :class:`LeaseUnavailable` if the server did not
        answer, and then the lease is still held until ``remaining()`` is 0.
        """
        self.check()
        with self._turn:
            self.check()
            sent = clock.now()
            try:
                (renewed,) = _twice(lambda: self._backend.renew([self._claim()]))
            except LeaseUnavailable:
                counts.add("unavailable")
                raise
            self._renewed(sent, renewed)
        self.check()

    def _renewed(self, sent: float, renewed: bool) -> None:
        if not renewed:
            self._lose("the server has it no more or has another owner for it", "lost_taken")
        elif self.held:
            self._deadline = sent + _safe(self.ttl)

    def release(self) -> bool:
        """Give the lease back; True if it was this holder's until now.

        False: it was not held, had been lost, or belongs to the parent process. May be
        called again; after :class:`LeaseUnavailable` it must be, or the lease stays until
        its TTL is over.
        """
        if os.getpid() != self._pid:
            return False
        with self._turn:
            if self._state in (_State.FREE, _State.RELEASED):
                return False
            lost, in_time = self.lost, self.held
            try:
                found, again = _release(self._backend, self.key, self._owner)
            except LeaseUnavailable:
                self._release_failed = True
                raise
            again = again or self._release_failed
            self._state = _State.RELEASED
        if lost:
            return False
        if found is Release.DONE or (found is Release.ABSENT and again and in_time):
            # Gone at the second try, within its time: the first one did it.
            return True
        if in_time:
            counts.add("lost_taken")
        return False

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
        if self._state is _State.RELEASED:
            return
        lost = self.lost
        kept = self._release_quietly()
        if kind is None and (lost or not kept):
            reason = self._loss or "the server had it no more or had another owner for it"
            raise LeaseLost(f"The lease on {self.key!r} ended before the work did: {reason}.")

    def _release_quietly(self) -> bool:
        """False only if the lease is known to have ended before."""
        try:
            return self.release()
        except LeaseUnavailable as error:
            log.warning("The lease on %s stays until its TTL is over: %s", self.key, error)
            return True

    # --- inside -------------------------------------------------------------------------

    def _claim(self) -> Claim:
        return Claim(self.key, self._owner, self.ttl)

    def _lose(self, reason: str, counter: counts.Name) -> None:
        with self._latch:
            if self._state is not _State.HELD:
                return
            self._loss = reason
            self._state = _State.LOST
        counts.add(counter)
        log.warning("Lost the lease on %s: %s.", self.key, reason)
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                log.exception("on_lost of the lease on %s failed.", self.key)

    def _why_not(self) -> str:
        if os.getpid() != self._pid:
            return "it belongs to the parent process"
        return self._loss or self._state.value

    def __repr__(self) -> str:
        return f"<Lease {self.key!r} {self._state.name.lower()} owner={self._owner!r}>"


def release(key: str, owner: str, *, backend: Backend | str | None = None) -> bool:
    """Free ``key`` if ``owner`` holds it: for whoever cleans up after a holder that died.

    Returns whether it did. Raises :class:`LeaseUnavailable`.
    """
    found, again = _release(backend_for(backend), key, owner)
    return found is Release.DONE or (found is Release.ABSENT and again)


def _release(backend: Backend, key: str, owner: str) -> tuple[Release, bool]:
    """What was found, and whether that was at a second try."""
    tries = 0

    def attempt() -> Release:
        nonlocal tries
        tries += 1
        return backend.release(key, owner)

    try:
        found = _twice(attempt)
    except LeaseUnavailable:
        counts.add("release_failed")
        raise
    if found is Release.FOREIGN:
        counts.add("release_mismatched")
    return found, tries > 1


def _twice(attempt: Callable[[], T]) -> T:
    """Try once more after a lost connection or answer: nothing here does harm twice."""
    try:
        return attempt()
    except LeaseUnavailable as error:
        if error.answered:
            raise
    return attempt()


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
        kept = _twice(lambda: backend.renew(claims))
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
