"""The pair that Jepsen runs against etcd: a lock alone must lose updates, a fence must not.

Processes read, add one and write under a lease, and are stopped for longer than its TTL
while they are at it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locks.held import held_leases
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.incrementer import TTL
from tests.locks.tally import new_tally


class Load:
    """Processes that add, and what they said of it."""

    def __init__(
        self, locks: ValkeyServer, database: str, said: Path, backend: str, *, fenced: bool
    ) -> None:
        self._said = said
        self._backend = backend
        arguments = [locks.url, backend, "fenced" if fenced else "unfenced"]
        with said.open("ab") as output:
            self._processes = [
                subprocess.Popen(
                    [sys.executable, "-m", "tests.locks.incrementer", *arguments],
                    env={**os.environ, "DATABASE_URL": database},
                    stdin=subprocess.PIPE,
                    stdout=output,
                )
                for _ in range(2)
            ]

    @property
    def acknowledged(self) -> int:
        return self._said.read_text().count("done\n")

    @property
    def refused(self) -> int:
        return self._said.read_text().count("refused\n")

    def stop_the_holder(self) -> None:
        """Stop the holder for longer than its lease lives; the others go on."""
        (held,) = wait_until(lambda: held_leases(self._backend))
        process = next(process for process in self._processes if process.pid == held.pid)
        process.send_signal(signal.SIGSTOP)
        time.sleep(TTL + 0.2)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)

    def end(self) -> None:
        """Have all finish what they are at."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(timeout=20) == 0

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


@pytest.fixture
def load(locks: ValkeyServer, database: str, tmp_path: Path) -> Iterator[Callable[..., Load]]:
    """Starts the processes: ``load("valkey", fenced=True)``."""
    started: list[Load] = []

    def start(backend: str, *, fenced: bool) -> Load:
        running = Load(locks, database, tmp_path / "said", backend, fenced=fenced)
        started.append(running)
        wait_until(lambda: running.acknowledged > 2, timeout=30)
        return running

    yield start
    for running in started:
        running.kill()


BACKENDS = ["valkey", pytest.param("postgres", marks=pytest.mark.full)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lease_alone_loses_updates(load: Callable[..., Load], backend: str) -> None:
    """D2, I2: the control. If this finds nothing, the next test shows nothing."""
    tally = new_tally()
    running = load(backend, fenced=False)
    for _ in range(40):
        running.stop_the_holder()
        acknowledged = running.acknowledged
        tally.refresh_from_db()
        # What was acknowledged before was written before.
        if tally.value < acknowledged:
            break
    running.end()
    tally.refresh_from_db()
    assert tally.value < running.acknowledged


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fenced_lease_loses_none(load: Callable[..., Load], backend: str) -> None:
    """D2"""
    tally = new_tally()
    running = load(backend, fenced=True)
    for _ in range(40):
        running.stop_the_holder()
        if running.refused >= 2:
            break
    running.end()
    tally.refresh_from_db()
    assert running.refused > 0
    assert tally.value == running.acknowledged
