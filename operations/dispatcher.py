"""The one owner of time: sends what is due, again what was lost, and rescues.

Any number of copies may run. A round is a few statements, each committed before anything
is published: no row lock is held over broker I/O. What a crash leaves between a commit
and its publish is a message that is lost, and is found like any other lost message.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DatabaseError, connection

from locks import LeaseUnavailable
from locks import release as release_lease
from locks.cache import records
from operations import controls, registry, throttle, verbs
from operations.admission import Admission
from operations.broker import Broker, BrokerUnavailable
from operations.broker_watch import BrokerWatch
from operations.crashpoints import reach
from operations.evidence import Evidence
from operations.executor import lease_owner
from operations.outflow import Outflow
from operations.recorder import Recorder
from operations.verbs import Envelope, Rescued

log = logging.getLogger(__name__)


class Dispatcher:
    """Rounds of sending and rescuing, until told to stop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._watch = BrokerWatch(broker)
        self._evidence = Evidence(broker)
        self._recorder = Recorder(broker)
        self._outflow = Outflow()
        self._admission = Admission()

    def run(self, stopping: Callable[[float], bool]) -> None:
        """Make rounds until ``stopping(seconds)``, which waits, answers True.

        Whatever is down, the dispatcher stays up and goes on when it is back.
        """
        while True:
            rest = settings.SEKALI_DISPATCH_INTERVAL
            with _outlived():
                if self.round() >= settings.SEKALI_DISPATCH_BATCH:
                    rest = 0
            # By itself: a broker that is full takes nothing more, and dead letters may be
            # what it is full of.
            with _outlived():
                self._recorder.look()
            if stopping(rest):
                return

    def round(self) -> int:
        """Repair the cache, rescue, then send. Returns how many messages were sent.

        :raises BrokerUnavailable: rescues are done all the same, sending waits
        """
        records.apply_due()
        send_rescued(*verbs.rescue_expired(), self._publish)
        self._admission.judge()
        self._watch.look()
        verbs.put_off(settings.SEKALI_DISPATCH_BATCH)
        # What is lost comes first: one queue that takes nothing ends the round, and what is due
        # is of all queues at once.
        lost = 0
        for kinds, sent_before in self._evidence.gather():
            again = verbs.take_lost(kinds, sent_before, settings.SEKALI_DISPATCH_BATCH)
            if again:
                log.warning("%d messages of %s are lost; sent again.", len(again), kinds)
            self._send(again)
            lost += len(again)
        return lost + self._send_due()

    def _send_due(self) -> int:
        sent = 0
        held, crowding = controls.held(), verbs.crowding()
        running = [k for k in registry.kinds() if k.name not in held or not held[k.name].paused]
        for kinds, most in self._outflow.grants(running):
            limit = settings.SEKALI_DISPATCH_BATCH
            if most is not None:
                limit = min(most, limit)
            if not limit:
                continue
            free = [kind for kind in kinds if kind not in held]
            if free:
                sent += self._send_taken(verbs.take_due(free, limit, passing_over=crowding))
            for kind in set(kinds) & held.keys():
                sent += self._send_taken(throttle.take_due(kind, limit))
        return sent

    def _send_taken(self, due: list[Envelope]) -> int:
        self._outflow.sent(due)
        self._send(due)
        return len(due)

    def _send(self, envelopes: list[Envelope]) -> None:
        if envelopes:
            reach("dispatch.taken")
            self._publish(envelopes)
            reach("dispatch.published")

    def _publish(self, envelopes: list[Envelope]) -> None:
        self._broker.publish(envelopes)


@contextmanager
def _outlived() -> Iterator[None]:
    """Whatever goes wrong is tried again in the next round."""
    try:
        yield
    except BrokerUnavailable as error:
        log.warning("The broker does not answer: %s", error)
    except DatabaseError as error:
        log.warning("The database does not answer: %s", error)
        connection.close()
    except Exception:
        # A bug in one step must not keep the others from being done.
        log.exception("A step of the dispatcher failed.")
        connection.close()


def send_rescued(
    freed: list[Rescued], woken: list[Envelope], publish: Callable[[list[Envelope]], None]
) -> None:
    """Release the leases of lost attempts and publish what their end has woken."""
    if freed:
        reach("rescue.committed")
    for lost in freed:
        log.warning("%s of kind %s lost its worker; it is %s.", lost.id, lost.kind, lost.state)
        if lost.resource:
            try:
                release_lease(lost.resource, lease_owner(lost.id, lost.epoch))
            except LeaseUnavailable as error:
                log.warning("The lease on %s will end by itself: %s", lost.resource, error)
    if woken:
        publish(woken)
