"""One thread for each process, which renews whatever has to be renewed."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from locks import clock

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds that the thread stays when there is nothing to renew.
_LINGER = 1.0

#: Whatever is due within so many seconds is renewed in the same round trip.
_TOGETHER = 0.1


class Renewer(Generic[T]):
    """Calls ``renew(things)`` with all that are due.

    ``renew`` returns each with the seconds after which it is due again, or None if it need
    not be watched any longer. The thread starts when it is needed and ends when it is not,
    with ``clear_up()`` as its last act.
    """

    def __init__(
        self,
        renew: Callable[[list[T]], list[tuple[T, float | None]]],
        clear_up: Callable[[], object],
    ) -> None:
        self._renew = renew
        self._clear_up = clear_up
        self._start_afresh()
        # Threads do not survive a fork, nor do the parent's leases.
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        self._due: dict[T, float] = {}
        self._changed = threading.Condition()
        self._running = False
        self._sleeps_until = 0.0

    def watch(self, thing: T, seconds: float) -> None:
        """Renew ``thing`` in ``seconds``, and from then on as ``renew`` says."""
        due = clock.now() + seconds
        with self._changed:
            self._due[thing] = due
            if not self._running:
                threading.Thread(target=self._run, name="locks-renewer", daemon=True).start()
                self._running = True
            elif due < self._sleeps_until:
                self._changed.notify()

    def forget(self, thing: T) -> None:
        with self._changed:
            self._due.pop(thing, None)

    def _run(self) -> None:
        try:
            self._keep_renewing()
        finally:
            self._clear_up()

    def _keep_renewing(self) -> None:
        while ready := self._next():
            try:
                answers = self._renew(ready)
            except Exception:
                # Without this thread every lease of the process would run out.
                log.exception("Renewing failed; trying again in a second.")
                answers = [(thing, 1.0) for thing in ready]
            with self._changed:
                for thing, seconds in answers:
                    if thing not in self._due:
                        continue
                    if seconds is None:
                        del self._due[thing]
                    else:
                        self._due[thing] = clock.now() + seconds

    def _next(self) -> list[T]:
        """Wait for what is due; nothing when the thread may end."""
        with self._changed:
            while True:
                now = clock.now()
                if any(due <= now for due in self._due.values()):
                    return [thing for thing, due in self._due.items() if due <= now + _TOGETHER]
                self._sleeps_until = min(self._due.values(), default=now + _LINGER)
                notified = self._changed.wait(self._sleeps_until - now)
                self._sleeps_until = 0.0
                if not notified and not self._due:
                    self._running = False
                    return []
