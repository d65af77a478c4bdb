"""What a holder knows of its lease without asking anybody."""

import logging
import os
import threading
from collections.abc import Callable
from enum import Enum

from locks import clock, counts

log = logging.getLogger(__name__)


class _State(Enum):
    FREE = "it was not asked for, or was refused"
    UNSURE = "it was asked for, and no answer came"
    HELD = "it is held"
    LOST = "it has ended"
    RELEASED = "it was given back"


class Holding:
    """The state of one lease in one process, by this process's own clock.

    A forked child has a copy of its parent's: it is ``foreign`` there and holds nothing.
    ``on_lost`` is called once for each loss, from whichever thread notices it.
    """

    def __init__(self, key: str, on_lost: Callable[[], object] | None) -> None:
        self.fence = 0
        self._key = key
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._state = _State.FREE
        self._until = 0.0
        self._loss = ""
        self._latch = threading.Lock()

    @property
    def foreign(self) -> bool:
        return os.getpid() != self._pid

    @property
    def begun(self) -> bool:
        """Whether the store may have the lease for this holder."""
        return self._state in (_State.UNSURE, _State.HELD, _State.LOST)

    @property
    def released(self) -> bool:
        return self._state is _State.RELEASED

    @property
    def lost(self) -> bool:
        if self.foreign:
            return self.begun
        if self._state is _State.HELD and clock.now() >= self._until:
            self.lose("its time ran out", "lost_expired")
        return self._state is _State.LOST

    @property
    def held(self) -> bool:
        return not self.lost and self._state is _State.HELD

    def remaining(self) -> float:
        return max(0.0, self._until - clock.now()) if self.held else 0.0

    def why_not(self) -> str:
        """Why it is not held, for a message."""
        if self.foreign:
            return "it belongs to the parent process"
        return self._loss or self._state.value

    def ask(self) -> None:
        self._state = _State.UNSURE
        self._loss = ""

    def refuse(self) -> None:
        self._state = _State.FREE

    def grant(self, fence: int, until: float) -> bool:
        """Hold it until then. False if that is over: the answer came too late to be used."""
        if clock.now() >= until:
            return False
        self.fence, self._until, self._state = fence, until, _State.HELD
        return True

    def extend(self, until: float) -> None:
        """Hold it until then, unless it is lost already."""
        if self.held:
            self._until = until

    def give_back(self) -> None:
        if self._state is not _State.LOST:
            self._state = _State.RELEASED

    def lose(self, reason: str, counter: counts.Name) -> None:
        with self._latch:
            if self._state is not _State.HELD:
                return
            self._loss = reason
            self._state = _State.LOST
        counts.add(counter)
        log.warning("Lost the lease on %s: %s.", self._key, reason)
        if self._on_lost is not None:
            try:
                self._on_lost()
            except Exception:
                log.exception("on_lost of the lease on %s failed.", self._key)

    def __str__(self) -> str:
        return self._state.name.lower()
