"""Many readers of one key in several processes: ``Crowd`` drives them, ``python -m`` is one.

What is read is a counter in the database. Loads take as long as they are told to.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

#: Seconds until a reader process is up.
START = 60.0


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


class Crowd:
    """Reader processes; each has as many threads as it is asked for."""

    def __init__(self, processes: int, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.locks.cache.crowd"]
        self.processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
            for _ in range(processes)
        ]
        for process in self.processes:
            assert _answer(process) == "ready"

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
            _tell(process, [entry, name, mine, loads, at])

    def end(self) -> tuple[list[Reading], list[Load]]:
        """The answers of all processes that are still there."""
        readings: list[Reading] = []
        loads: list[Load] = []
        for process in self.processes:
            if process.poll() is None:
                told = _answer(process)
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
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


def at_once(loads: Sequence[Load]) -> int:
    """How many of the loads went on at the same time, at most."""
    ends = [(load.began, 1) for load in loads] + [(load.ended, -1) for load in loads]
    going, most = 0, 0
    for _, step in sorted(ends):
        going += step
        most = max(most, going)
    return most


def _tell(process: "subprocess.Popen[str]", what: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _answer(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


# --- one process ------------------------------------------------------------------------


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.db import connection

    from locks.cache import CacheEntry
    from tests.lab.scripted.models import Counter

    loads: list[tuple[float, float]] = []
    plan: list[float] = [0.0]
    guard = threading.Lock()

    def load(name: str) -> int | None:
        with guard:
            seconds = plan.pop(0) if len(plan) > 1 else plan[0]
        began = time.monotonic()
        value = Counter.objects.values_list("value", flat=True).get(name=name)
        time.sleep(abs(seconds))
        loads.append((began, time.monotonic()))
        if seconds < 0:
            raise ZeroDivisionError("the load fails")
        return value

    options: dict[str, Any] = {
        "key": "{name}",
        "load": load,
        "tolerates": 600,
        "source": "scripted_counter",
        "lease": 2,
        "wait": 1,
    }
    entries: dict[str, CacheEntry[int]] = {
        "strict": CacheEntry("crowd-strict", ttl=60, **options),
        "lenient": CacheEntry("crowd-lenient", ttl=0.5, stale=60, **options),
        "patient": CacheEntry("crowd-patient", ttl=60, **{**options, "wait": 20}),
    }

    def reader(entry: str, name: str, at: float, readings: list[Any]) -> None:
        time.sleep(max(0, at - time.monotonic()))
        began = time.monotonic()
        value, error = None, ""
        try:
            value = entries[entry].get(name=name)
        except Exception as raised:  # noqa: BLE001  (whatever it is, the test judges)
            error = type(raised).__name__
        readings.append((value, error, time.monotonic() - began))
        connection.close()

    _say("ready")
    for line in sys.stdin:
        entry, name, readers, planned, at = json.loads(line)
        loads.clear()
        plan[:] = planned if isinstance(planned, list) else [planned]
        readings: list[Any] = []
        threads = [
            threading.Thread(target=reader, args=(entry, name, at, readings))
            for _ in range(readers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _say({"readings": readings, "loads": loads})


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
