"""Starts programs that cannot outlive the process that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import psutil

from deploy.local import register
from deploy.local.account import Account
from deploy.local.register import Entry, Register

TREE = Path(__file__).resolve().parents[2]
_GATE = Path(__file__).with_name("gate.py")


@dataclass(frozen=True)
class Command:
    """What to start and how to end it.

    ``env`` is the whole environment. ``stop_signal`` asks the process to end; after
    ``grace_s`` seconds its group is killed. ``stage`` orders the end when the starter
    itself dies: the highest ends first. ``account``: the user to run as, None for ours.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path = TREE
    account: Account | None = None
    stop_signal: int = signal.SIGTERM
    grace_s: float = 10.0
    stage: int = 1


class Launcher:
    """Starts commands, each in a process group of its own that ends with this process.

    Every process is in the register before its program begins, and a watching process ends
    what the register names when this one disappears. ``close`` when all have ended.
    """

    def __init__(self, path: Path, signs: Iterable[Path] = ()) -> None:
        """``path``: where the register of the started processes is kept.

        ``signs``: files to remove at the end, since they tell where the programs are.
        """
        self._register = Register(path)
        self._register.path.unlink(missing_ok=True)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "deploy.local.reaper", str(path), *map(str, signs)],
            cwd=TREE,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def popen(
        self, command: Command, output: IO[bytes] | int | None = None
    ) -> tuple[subprocess.Popen[bytes], Entry]:
        """Start it; its standard output and error go to ``output`` (as for ``Popen``)."""
        with _Gate(command) as gate:
            process = subprocess.Popen(
                gate.argv,
                env=command.env,
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                pass_fds=(gate.descriptor,),
                start_new_session=True,
            )
            entry = self._write_down(command, process.pid)
            gate.open()
        self._running[process.pid] = process
        return process, entry

    def ended(self, entry: Entry) -> None:
        """Forget a process that has ended, group and all."""
        self._register.drop(entry.pid)
        self._running.pop(entry.pid, None)

    def close(self) -> None:
        """Stop watching. What still runs is ended by the watcher."""
        if self._reaper.stdin:
            self._reaper.stdin.close()
        self._reaper.wait()
        register.end_all(register.read(self._register.path))  # should it have been killed
        for process in self._running.values():
            process.wait()
        self._register.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_down(self, command: Command, pid: int) -> Entry:
        entry = Entry(
            name=command.name,
            pid=pid,
            started=psutil.Process(pid).create_time(),
            stop_signal=command.stop_signal,
            grace_s=command.grace_s,
            stage=command.stage,
        )
        self._register.add(entry)
        return entry


class _Gate:
    def __init__(self, command: Command) -> None:
        self.descriptor, self._write = os.pipe()
        account = command.account
        user = [str(account.uid), str(account.gid)] if account else ["-1", "-1"]
        # Isolated and without site packages Python starts in some ten milliseconds.
        python = [sys.executable, "-I", "-S", str(_GATE)]
        self.argv = [*python, str(self.descriptor), *user, *command.argv]

    def open(self) -> None:
        os.write(self._write, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        os.close(self._write)
