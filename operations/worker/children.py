"""Prompt rescue: the worker's main process tells of its children's death.

Celery declares a lost child's job lost on a timer of 5 s, and a killed child runs no
hook at all. Here a thread of the main process watches the children themselves and takes
back what a dead one held within a fraction of a second.

It also bounds the end of a worker: children that have not finished within the grace are
killed, and what they held is handed back, uncounted.
"""

import logging
import os
import select
import signal
import threading
import time
from queue import SimpleQueue
from typing import Any

from celery import bootsteps, signals
from django.conf import settings
from django.db import DatabaseError, connection

from operations import verbs
from operations.broker import get_broker
from operations.dispatcher import send_rescued
from operations.verbs import Envelope
from operations.worker import ends
from operations.worker.ends import Why
from operations.worker.process import process_name

log = logging.getLogger(__name__)

#: Seconds until a new child is watched; after that its death is noticed at once.
INTERVAL = 0.1


class ChildWatch(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step of the worker: watches the children of its prefork pool."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._leaving = threading.Event()
        self._gone = threading.Event()
        #: pidfd → (pid, name); a pidfd becomes readable when its process ends, and
        #: waiting on it does not take the exit status away from Celery.
        self._children: dict[int, tuple[int, str]] = {}
        self._born: SimpleQueue[tuple[int, int, str]] = SimpleQueue()
        self._dead: list[tuple[str, Why | None]] = []

    def include_if(self, parent: Any) -> bool:
        """
        :raises SystemExit: the pool is not of processes
        """
        if "prefork" not in str(parent.pool_cls):
            # Nothing could end an attempt that hangs, nor outlive one that kills its process.
            raise SystemExit("A worker of this platform needs --pool=prefork.")
        return True

    def start(self, parent: Any) -> None:
        signals.worker_shutting_down.connect(self._on_shutting_down, weak=False)
        signals.worker_shutdown.connect(self._on_shutdown, weak=False)
        self._watch_births(parent.pool._pool, parent.hostname)
        threading.Thread(target=self._run, name="child-watch", daemon=True).start()

    # --- deaths -----------------------------------------------------------------------

    def _watch_births(self, pool: Any, node: str) -> None:
        """Know of each child before it can die: a dead one has no name to be asked for."""
        create = pool._create_worker_process

        def create_and_tell(*args: Any) -> Any:
            child = create(*args)
            self._tell_of(child.pid, node)
            return child

        pool._create_worker_process = create_and_tell
        for child in pool._pool:
            self._tell_of(child.pid, node)

    def _tell_of(self, pid: int, node: str) -> None:
        try:
            self._born.put((os.pidfd_open(pid), pid, process_name(node, pid)))
        except ProcessLookupError:
            log.warning("A child of the pool died at birth.")

    def _adopt(self) -> list[int]:
        adopted = []
        while not self._born.empty():
            pidfd, pid, name = self._born.get()
            self._children[pidfd] = pid, name
            adopted.append(pidfd)
        return adopted

    def _run(self) -> None:
        poller = select.poll()
        while not self._leaving.is_set():
            for pidfd in self._adopt():
                poller.register(pidfd, select.POLLIN)
            for pidfd, _event in poller.poll(INTERVAL * 1000):
                poller.unregister(pidfd)
                os.close(pidfd)
                pid, name = self._children.pop(pidfd)
                self._dead.append((name, ends.reason_for(pid)))
            if not self._leaving.is_set():
                self._report()

    def _report(self) -> None:
        while self._dead:
            name, why = self._dead[0]
            try:
                send_rescued(*_take_back(name, why), _publish)
            except DatabaseError as error:
                # Tried again at the next look; the dispatcher rescues by time besides.
                log.warning("Cannot report the death of %s: %s", name, error)
                connection.close()
                return
            self._dead.pop(0)

    # --- the end of the worker --------------------------------------------------------

    def _on_shutting_down(self, **_: Any) -> None:
        """From here on children are ended on purpose, which is no loss of theirs."""
        if not self._leaving.is_set():
            self._leaving.set()
            threading.Thread(target=self._end_in_time, name="leaving", daemon=True).start()

    def _end_in_time(self) -> None:
        """Kill what has not finished within the grace, so that the worker can end."""
        if self._gone.wait(settings.SEKALI_SHUTDOWN_GRACE):
            return
        self._adopt()
        children = list(self._children.items())
        for _pidfd, (pid, name) in children:
            try:
                os.kill(pid, signal.SIGKILL)
                log.warning("%s has not finished in time; its work is handed back.", name)
            except ProcessLookupError:
                continue
        for pidfd, _child in children:
            select.select([pidfd], [], [], 1)
        self._hand_back()

    def _on_shutdown(self, **_: Any) -> None:
        """The pool is gone: hand back what its children could not finish."""
        self._gone.set()
        self._adopt()
        self._hand_back()

    def _hand_back(self) -> None:
        deadline = time.monotonic() + 3
        for _pid, name in list(self._children.values()):
            while True:
                try:
                    send_rescued(*verbs.hand_back(name), _publish)
                    break
                except DatabaseError as error:
                    log.warning("Cannot hand back the claims of %s: %s", name, error)
                    connection.close()
                    if time.monotonic() > deadline:
                        return  # they come back when their heartbeat is missed
                    time.sleep(0.2)


def _take_back(name: str, why: Why | None) -> tuple[list[verbs.Rescued], list[Envelope]]:
    match why:
        case None:
            return verbs.rescue_claims_of(name)
        case Why.TIMED_OUT:
            return verbs.rescue_claims_of(name, timed_out=True)
        case Why.REVOKED:
            return verbs.hand_back(name, revoked=True)
        case Why.LEAVING:
            return verbs.hand_back(name)


def _publish(envelopes: list[Envelope]) -> None:
    for envelope in envelopes:
        get_broker().try_publish(envelope)
