"""The processes that were started here, written down so that none is left behind."""

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import psutil

#: Start times are told with less than this error (seconds) when the clock is set meanwhile.
_CLOCK_ERROR_S = 5.0


@dataclass(frozen=True)
class Entry:
    """One started process, leader of its own process group.

    ``started`` (seconds since the epoch) tells it from a later process of the same number.
    ``stage`` orders the end: the highest stage ends first.
    """

    name: str
    pid: int
    started: float
    stop_signal: int
    grace_s: float
    stage: int


class Register:
    """A file of entries, replaced whole at each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[int, Entry] = {}

    def add(self, entry: Entry) -> None:
        self._entries[entry.pid] = entry
        self._write()

    def drop(self, pid: int) -> None:
        if self._entries.pop(pid, None):
            self._write()

    def _write(self) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps([asdict(entry) for entry in self._entries.values()]))
        draft.replace(self.path)


def read(path: Path) -> list[Entry]:
    """The entries of a register that another process wrote; none when it has no file."""
    try:
        return [Entry(**row) for row in json.loads(path.read_text())]
    except FileNotFoundError:
        return []


def end_all(entries: Iterable[Entry]) -> list[str]:
    """End what still runs of these, stage by stage; return the names of what did.

    Each process is asked with its own signal and killed with its group when its grace is
    over. Processes that merely got the number of an ended one are left alone.
    """
    ended: list[str] = []
    by_stage = sorted(entries, key=lambda entry: -entry.stage)
    for _, stage in groupby(by_stage, key=lambda entry: entry.stage):
        running = [entry for entry in stage if group(entry)]
        ended += [entry.name for entry in running]
        for entry in running:
            ask(entry)
        began = time.monotonic()
        while running:
            passed = time.monotonic() - began
            for entry in running:
                if passed >= entry.grace_s or not is_alive(entry):
                    kill(family(entry))
            if passed >= 30 + max(entry.grace_s for entry in running):
                break
            running = [entry for entry in running if group(entry)]
            time.sleep(0.05 if running else 0)
    return ended


def ask(entry: Entry) -> None:
    """Ask the process, in the way it has, to end."""
    if is_alive(entry):
        _send(entry.pid, entry.stop_signal)
        # A stopped process would not see the signal.
        _send(entry.pid, signal.SIGCONT)


def is_alive(entry: Entry) -> bool:
    """Whether the process itself (not merely its group) still runs."""
    try:
        process = psutil.Process(entry.pid)
        return _is_same(process, entry) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def group(entry: Entry) -> list[psutil.Process]:
    """The running processes of the entry's group, also when their leader has gone."""
    # The system gives a number to no new process while a group still bears it.
    if psutil.pid_exists(entry.pid) and not _is_same(psutil.Process(entry.pid), entry):
        return []
    return [process for process in psutil.process_iter() if _belongs(process, entry.pid)]


def family(entry: Entry) -> list[psutil.Process]:
    """The group and all that descends from it, sessions of their own included."""
    members = {process.pid: process for process in group(entry)}
    for member in list(members.values()):
        try:
            members.update({child.pid: child for child in member.children(recursive=True)})
        except psutil.NoSuchProcess:
            continue
    return list(members.values())


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill each, whatever has ended meanwhile apart."""
    for process in processes:
        _send(process.pid, signal.SIGKILL)


def _is_same(process: psutil.Process, entry: Entry) -> bool:
    try:
        return abs(process.create_time() - entry.started) < _CLOCK_ERROR_S
    except psutil.NoSuchProcess:
        return False


def _belongs(process: psutil.Process, pgid: int) -> bool:
    try:
        return os.getpgid(process.pid) == pgid and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
