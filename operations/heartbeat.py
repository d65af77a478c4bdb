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

    def forget(self, claim: Claim) -> None:
        """The attempt is over, whichever way."""
        with self._changed:
            self._watches.pop(claim.epoch, None)

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
            log.warning("The lease on %s is lost.", watch.claim.resource)
            self._give_up(watch)
            return
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

    def _give_up(self, watch: _Watch) -> None:
        watch.claim.lost.set()
        self.forget(watch.claim)


def _interval() -> float:
    return float(settings.SEKALI_CLAIM_TTL) / 3
