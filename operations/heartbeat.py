"""One thread a process that keeps claims and leases alive while handlers work.

Short attempts end before the first beat, so they cost nothing; the thread opens its own
database connection only when it has something to say.
"""

import logging
import threading
import time
from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError, connection

from locks import Lease, LeaseLost, LeaseUnavailable
from operations import verbs
from operations.claim import Claim

log = logging.getLogger(__name__)


@dataclass
class _Watch:
    claim: Claim
    lease: Lease | None
    next_beat: float
    until: float


class Heartbeat:
    """Beats for every watched claim, a third of the TTL apart.

    Bounded by the kind's time limit: an orphan whose worker forgot it must not live for ever.
    """

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, claim: Claim, lease: Lease | None) -> None:
        """Keep this claim and its lease until :meth:`forget`."""
        now = time.monotonic()
        with self._changed:
            # A little longer than the limit: the worker's main process is to end it, and say why.
            until = now + claim.kind.time_limit + settings.SEKALI_CLAIM_TTL
            self._watches[claim.epoch] = _Watch(claim, lease, now + _interval(), until)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, claim: Claim) -> Lease | None:
        """The attempt is over, whichever way. Returns the lease that it has now."""
        with self._changed:
            watch = self._watches.pop(claim.epoch, None)
        return None if watch is None else watch.lease

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = [watch for watch in self._watches.values() if watch.next_beat <= now]
                if not due:
                    soonest = min((w.next_beat for w in self._watches.values()), default=None)
                    if soonest is None:
                        connection.close()
                    self._changed.wait(None if soonest is None else soonest - now)
                    continue
            for watch in due:
                self._beat(watch)

    def _beat(self, watch: _Watch) -> None:
        now = time.monotonic()
        watch.next_beat = now + _interval()
        if now > watch.until:
            log.error("The attempt outlived its time limit; its claim is not kept any longer.")
            self._give_up(watch)
            return
        try:
            # The lease first: it must not end before the claim that it protects.
            if watch.lease is not None:
                watch.lease.renew()
        except LeaseLost:
            if not self._take_again(watch):
                log.warning("Somebody else has the lease on %s now.", watch.claim.resource)
                # The row stays kept until the handler notices, and so is not called lost.
                watch.lease = None
                watch.claim.evicted = True
                watch.claim.lost.set()
        except LeaseUnavailable as error:
            # The row is the claim; the lease only keeps other code away.
            log.warning("Cannot renew the lease on %s: %s", watch.claim.resource, error)
        try:
            if not verbs.keep(watch.claim.row):
                self._give_up(watch)
        except DatabaseError as error:
            log.warning("Cannot keep the claim of %s: %s", watch.claim.id, error)
            connection.close()
            watch.next_beat = now + _interval() / 4

    def _take_again(self, watch: _Watch) -> bool:
        """The lease server forgot us, or we were late: the claim stands, so try once more."""
        assert watch.lease is not None
        lease = Lease(watch.lease.key, ttl=watch.lease.ttl, owner=watch.lease.owner)
        try:
            if not lease.acquire():
                return False
        except LeaseUnavailable as error:
            log.warning("Cannot take the lease on %s again: %s", lease.key, error)
            return True  # the row is the claim; the next beat tries again
        log.warning("The lease on %s was lost, and is ours again.", lease.key)
        watch.lease = lease
        return True

    def _give_up(self, watch: _Watch) -> None:
        watch.claim.lost.set()
        self.forget(watch.claim)


def _interval() -> float:
    return float(settings.SEKALI_CLAIM_TTL) / 3
