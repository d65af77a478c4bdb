"""Prompt rescue: the worker's main process tells of its children's death.

Celery declares a lost child's job lost on a timer of 5 s, and a killed child runs no
hook at all. Here a thread of the main process watches the children themselves and takes
back what a dead one held within a fraction of a second.
"""

import logging
import os
import select
import threading
from typing import Any

from celery import bootsteps, signals
from django.db import DatabaseError, connection

from operations import verbs
from operations.broker import get_broker
from operations.dispatcher import send_rescued
from operations.verbs import Envelope
from operations.worker.process import process_name

log = logging.getLogger(__name__)

#: Seconds between two looks for new children; a death is noticed at once.
INTERVAL = 0.2


class ChildWatch(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step of the worker: watches the children of its prefork pool."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._leaving = threading.Event()
        #: pidfd → (pid, name); a pidfd becomes readable when its process ends, and
        #: waiting on it does not take the exit status away from Celery.
        self._children: dict[int, tuple[int, str]] = {}
        self._dead: list[str] = []

    def include_if(self, parent: Any) -> bool:
        return "prefork" in str(parent.pool_cls)

    def start(self, parent: Any) -> None:
        signals.worker_shutting_down.connect(self._on_shutting_down, weak=False)
        signals.worker_shutdown.connect(self._on_shutdown, weak=False)
        threading.Thread(target=self._run, args=(parent,), name="child-watch", daemon=True).start()

    def _on_shutting_down(self, **_: Any) -> None:
        """From here on children are ended on purpose, which is no loss of theirs."""
        self._leaving.set()

    def _on_shutdown(self, **_: Any) -> None:
        """The pool is gone: hand back, uncounted, what its children could not finish."""
        for _pid, name in self._children.values():
            try:
                send_rescued(*verbs.hand_back(name), _publish)
            except DatabaseError as error:
                log.warning("Cannot hand back the claims of %s: %s", name, error)
                return

    def _run(self, worker: Any) -> None:
        poller = select.poll()
        while not self._leaving.is_set():
            self._look_for_new(worker, poller)
            for pidfd, _event in poller.poll(INTERVAL * 1000):
                poller.unregister(pidfd)
                os.close(pidfd)
                self._dead.append(self._children.pop(pidfd)[1])
            if not self._leaving.is_set():
                self._report()

    def _look_for_new(self, worker: Any, poller: "select.poll") -> None:
        known = {pid for pid, _ in self._children.values()}
        for child in list(worker.pool._pool._pool):
            if child.pid in known:
                continue
            try:
                pidfd = os.pidfd_open(child.pid)
                self._children[pidfd] = (child.pid, process_name(worker.hostname, child.pid))
            except ProcessLookupError:
                continue
            poller.register(pidfd, select.POLLIN)

    def _report(self) -> None:
        while self._dead:
            try:
                send_rescued(*verbs.rescue_claims_of(self._dead[0]), _publish)
            except DatabaseError as error:
                # Tried again at the next look; the dispatcher rescues by time besides.
                log.warning("Cannot report the death of %s: %s", self._dead[0], error)
                connection.close()
                return
            self._dead.pop(0)


def _publish(envelopes: list[Envelope]) -> None:
    for envelope in envelopes:
        get_broker().try_publish(envelope)
