import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import register
from deploy.local.launcher import TREE, Launcher
from tests.deploy.standins import has_ended, lines, pids, python, sleeper
from tests.lab.waiting import wait_until


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    with Launcher(tmp_path / "processes.json") as launcher:
        yield launcher


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with two sleepers, "store" and "worker", in stages 0 and 2."""
    process = subprocess.Popen([sys.executable, "-m", "tests.deploy.starter", tmp_path], cwd=TREE)
    journal = tmp_path / "journal"
    wait_until(lambda: pids(journal, "store") and pids(journal, "worker"))
    yield process
    process.kill()
    process.wait()
    register.end_all(register.read(tmp_path / "processes.json"))


def test_children_end_in_order_when_their_starter_is_killed(
    starter: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Set-up: `kill -9` of the supervisor leaves nothing running."""
    starter.kill()

    wait_until(lambda: len(lines(tmp_path / "journal")) == 4)

    assert lines(tmp_path / "journal")[2:] == ["worker ended", "store ended"]


def test_children_are_ended_from_the_register_when_the_watcher_was_killed_too(
    starter: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Set-up: the next start recovers after everything around the children was killed."""
    (watcher,) = [
        child
        for child in psutil.Process(starter.pid).children()
        if "deploy.local.reaper" in child.cmdline()
    ]
    watcher.kill()
    starter.kill()
    starter.wait()
    children = pids(tmp_path / "journal", "store") + pids(tmp_path / "journal", "worker")
    assert not any(map(has_ended, children))

    ended = register.end_all(register.read(tmp_path / "processes.json"))

    assert ended == ["worker", "store"]
    assert all(map(has_ended, children))


def test_a_later_process_with_the_number_of_an_ended_one_is_left_alone(
    launcher: Launcher, tmp_path: Path
) -> None:
    process, entry = launcher.popen(sleeper("other", tmp_path / "journal"))
    wait_until(lambda: lines(tmp_path / "journal"))

    earlier = replace(entry, started=entry.started - 3600)

    assert register.end_all([earlier]) == []
    assert process.poll() is None
    assert register.end_all([entry]) == ["other"]
    assert process.wait() == 0


def test_a_program_never_begins_when_its_starter_dies_before_writing_it_down(
    tmp_path: Path,
) -> None:
    read, write = os.pipe()
    gate = TREE / "deploy" / "local" / "gate.py"
    touch = ["/usr/bin/env", "touch", str(tmp_path / "began")]
    process = subprocess.Popen(
        [sys.executable, str(gate), str(read), "-1", "-1", *touch], pass_fds=(read,)
    )

    os.close(write)

    assert process.wait(timeout=10) == 1
    assert not (tmp_path / "began").exists()
    os.close(read)


def test_what_a_killed_process_left_in_its_group_is_found_and_killed(launcher: Launcher) -> None:
    parent = python(
        "parent",
        """
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        time.sleep(60)
        """,
        grace_s=0.1,
    )
    process, entry = launcher.popen(parent)
    wait_until(lambda: len(register.group(entry)) == 2)
    process.kill()
    process.wait()
    assert len(register.group(entry)) == 1

    register.end_all([entry])

    assert register.group(entry) == []


def test_a_stopped_process_ends_when_asked(launcher: Launcher, tmp_path: Path) -> None:
    process, entry = launcher.popen(sleeper("stopped", tmp_path / "journal"))
    wait_until(lambda: lines(tmp_path / "journal"))
    process.send_signal(signal.SIGSTOP)

    began = time.monotonic()
    register.end_all([entry])

    assert lines(tmp_path / "journal")[-1] == "stopped ended"
    assert time.monotonic() - began < 3
    assert process.wait() == 0
