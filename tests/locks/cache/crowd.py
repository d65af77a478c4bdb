"""Many readers of one key in several processes: ``Crowd`` drives them, ``python -m`` is them.

What is read is a counter in the database. Loads take as long as they are told to.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Reading:
    """One reader's answer (or what was raised) and how long it took, in seconds."""

    value: int | None
    error: str
    took: float


@dataclass(frozen=True)
class Load:
    """When a load began and ended, by the machine's monotonic clock."""

    began: float
    ended: float


class Process:
    """One reader process, to be told and to be killed."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._stream = ours.makefile("rw")
        self.pid: int = self.answer()
        self.is_there = True

    def tell(self, what: Any) -> None:
        self._stream.write(json.dumps(what) + "\n")
        self._stream.flush()

    def answer(self) -> Any:
        """What it says next; waits for it."""
        return json.loads(self._stream.readline())

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """``kill -9`` it, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        while self._socket.recv(65536):
            continue
        self.is_there = False

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Crowd:
    """Reader processes; each has as many threads as it is asked for.

    They are forked from one that has loaded everything, since that takes longest.
    """

    def __init__(self, processes: int, environment: Mapping[str, str]) -> None:
        pairs = [socket.socketpair() for _ in range(processes)]
        theirs = [pair[1].fileno() for pair in pairs]
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.locks.cache.crowd", *map(str, theirs)],
            pass_fds=theirs,
            env={**os.environ, **environment},
        )
        for _, their in pairs:
            their.close()
        self.processes = [Process(ours) for ours, _ in pairs]

    def read(
        self, entry: str, name: str, readers: int, loads: Sequence[float] | float = 0.0
    ) -> tuple[list[Reading], list[Load]]:
        """Have so many readers read at once, spread over the processes.

        :param loads: how many seconds a load takes; below 0: it raises after that time
        """
        self.begin(entry, name, readers, loads)
        return self.end()

    def begin(
        self, entry: str, name: str, readers: int, loads: Sequence[float] | float = 0.0
    ) -> None:
        """As :meth:`read`, without waiting for the answers."""
        at = time.monotonic() + 0.3
        for number, process in enumerate(self.processes):
            mine = len(range(number, readers, len(self.processes)))
            process.tell([entry, name, mine, loads, at])

    def end(self) -> tuple[list[Reading], list[Load]]:
        """The answers of all processes that are still there."""
        readings: list[Reading] = []
        loads: list[Load] = []
        for process in self.processes:
            if process.is_there:
                told = process.answer()
                readings += [Reading(*reading) for reading in told["readings"]]
                loads += [Load(*load) for load in told["loads"]]
        return readings, loads

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.kill()
            process.close()
        # It ends when its last child does.
        self._parent.wait(10)


def at_once(loads: Sequence[Load]) -> int:
    """How many of the loads went on at the same time, at most."""
    ends = [(load.began, 1) for load in loads] + [(load.ended, -1) for load in loads]
    going, most = 0, 0
    for _, step in sorted(ends):
        going += step
        most = max(most, going)
    return most


# --- the processes ----------------------------------------------------------------------


def main(sockets: Sequence[int]) -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    readers = _Readers()
    for own in sockets:
        if os.fork() == 0:
            for other in sockets:
                if other != own:
                    os.close(other)
            readers.serve(socket.socket(fileno=own).makefile("rw"))
            os._exit(0)
    for own in sockets:
        os.close(own)
    for _ in sockets:
        os.wait()


class _Readers:
    """Those of one process."""

    def __init__(self) -> None:
        from locks.cache import CacheEntry

        self._loads: list[tuple[float, float]] = []
        self._plan: list[float] = []
        self._guard = threading.Lock()
        options: dict[str, Any] = {
            "key": "{name}",
            "load": self._load,
            "ttl": 60,
            "tolerates": 600,
            "source": "scripted_counter",
            "lease": 2,
            "wait": 1,
        }
        self._entries: dict[str, CacheEntry[int]] = {
            "strict": CacheEntry("crowd-strict", **options),
            "lenient": CacheEntry("crowd-lenient", stale=60, **options),
            "patient": CacheEntry("crowd-patient", **{**options, "wait": 20}),
        }

    def serve(self, stream: Any) -> None:
        """Do what is asked for, line by line."""
        _say(stream, os.getpid())
        for line in stream:
            entry, name, readers, planned, at = json.loads(line)
            self._loads.clear()
            self._plan[:] = planned if isinstance(planned, list) else [planned]
            readings: list[Any] = []
            threads = [
                threading.Thread(target=self._read, args=(entry, name, at, readings))
                for _ in range(readers)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            _say(stream, {"readings": readings, "loads": self._loads})

    def _read(self, entry: str, name: str, at: float, readings: list[Any]) -> None:
        from django.db import connection

        time.sleep(max(0, at - time.monotonic()))
        began = time.monotonic()
        value, error = None, ""
        try:
            value = self._entries[entry].get(name=name)
        except Exception as raised:  # noqa: BLE001  (whatever it is, the test judges)
            error = type(raised).__name__
        readings.append((value, error, time.monotonic() - began))
        connection.close()

    def _load(self, name: str) -> int | None:
        from tests.lab.scripted.models import Counter

        with self._guard:
            seconds = self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]
        began = time.monotonic()
        value = Counter.objects.values_list("value", flat=True).get(name=name)
        time.sleep(abs(seconds))
        self._loads.append((began, time.monotonic()))
        if seconds < 0:
            raise ZeroDivisionError("the load fails")
        return value


def _say(stream: Any, what: Any) -> None:
    stream.write(json.dumps(what) + "\n")
    stream.flush()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
