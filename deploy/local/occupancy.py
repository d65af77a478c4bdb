"""At most one ``make up`` in a tree, and what others may know of it."""

import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from deploy.local.home import Home, write_private

#: An earlier run that is ending may take this long (seconds).
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class State:
    """What the run that holds the tree says of itself.

    ``stage``: ``starting``, ``running`` or ``ending``; ``parent``: the process whose death
    ends the run, 0 for none; ``addresses``: text for people, once running.
    """

    pid: int
    stage: str
    parent: int = 0
    addresses: str = ""


class AlreadyRunning(Exception):
    """Another run holds the tree and goes on; ``state`` is what it says of itself."""

    def __init__(self, state: State) -> None:
        super().__init__(f"process {state.pid} already runs here")
        self.state = state


class Occupancy:
    """The tree, held by this process until ``release`` or its death, whatever kills it."""

    def __init__(self, home: Home) -> None:
        self._state_file = home.path / "up.json"
        self._lock_file = home.path / "up.lock"
        self._lock: TextIO | None = None

    def take(self, parent: int = 0) -> None:
        """Hold the tree.

        Waits for a run that is ending. Raises ``AlreadyRunning``, or ``TimeoutError`` when
        an earlier run does not come to its end.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while not self._try():
            state = self._read()
            if state and state.stage != "ending" and not _is_orphan(state):
                raise AlreadyRunning(state)
            if time.monotonic() > deadline:
                raise TimeoutError(f"an earlier run has not ended ({self._lock_file} is locked)")
            time.sleep(0.1)
        self.tell("starting", parent=parent)

    def tell(self, stage: str, *, parent: int = 0, addresses: str = "") -> None:
        """Say how far this run is."""
        state = State(os.getpid(), stage, parent, addresses)
        write_private(self._state_file, json.dumps(asdict(state)))

    def release(self) -> None:
        self._state_file.unlink(missing_ok=True)
        if self._lock:
            self._lock.close()

    def end_other(self) -> bool:
        """Ask the run that holds the tree to end and wait for it; False when there is none.

        Raises ``TimeoutError`` when it does not end.
        """
        if self._try():
            self.release()
            return False
        deadline = time.monotonic() + _PATIENCE_S
        asked = False
        while not self._try():
            state = self._read()
            if state and not asked:
                os.kill(state.pid, signal.SIGTERM)
                asked = True
            if time.monotonic() > deadline:
                raise TimeoutError("the run does not end")
            time.sleep(0.1)
        self.release()
        return True

    def _try(self) -> bool:
        lock = Path(self._lock_file).open("a")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def _read(self) -> State | None:
        try:
            return State(**json.loads(self._state_file.read_text()))
        except FileNotFoundError:
            return None


def _is_orphan(state: State) -> bool:
    """Whether the run is about to notice that its parent has gone."""
    if not state.parent:
        return False
    try:
        os.kill(state.parent, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
