import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.home import Home
from deploy.local.launcher import TREE
from deploy.local.occupancy import AlreadyRunning, Occupancy
from tests.lab.waiting import wait_until

HOLDER = """
    import signal, sys
    from pathlib import Path
    from deploy.local.home import Home
    from deploy.local.occupancy import Occupancy
    occupancy = Occupancy(Home(Path(sys.argv[1])))
    occupancy.take(parent=int(sys.argv[3]))
    occupancy.tell(sys.argv[2], parent=int(sys.argv[3]), addresses="http://here")
    signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / ".local")


class Holder:
    """Another process that holds the tree."""

    def __init__(self, home: Home, stage: str, parent: int = 0) -> None:
        script = textwrap.dedent(HOLDER)
        command = [sys.executable, "-c", script, str(home.path), stage, str(parent)]
        self.process = subprocess.Popen(command, cwd=TREE)
        state = home.path / "up.json"
        wait_until(lambda: state.exists() and stage in state.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def running(home: Home) -> Iterator[Holder]:
    holder = Holder(home, "running")
    yield holder
    holder.kill()


def test_a_second_run_is_told_where_the_first_is(home: Home, running: Holder) -> None:
    """Set-up: a second `make up` says so and does no harm."""
    with pytest.raises(AlreadyRunning) as told:
        Occupancy(home).take()

    assert told.value.state.addresses == "http://here"
    assert told.value.state.pid == running.process.pid
    assert running.process.poll() is None


def test_the_tree_is_free_again_after_a_kill(home: Home, running: Holder) -> None:
    """Set-up: one after a `kill -9` of the first recovers."""
    running.kill()

    occupancy = Occupancy(home)
    occupancy.take()

    occupancy.release()


@pytest.mark.parametrize(("stage", "parent"), [("ending", 0), ("running", 2**22 + 1)])
def test_a_run_that_is_ending_or_lost_its_parent_is_waited_for(
    home: Home, stage: str, parent: int
) -> None:
    holder = Holder(home, stage, parent)
    occupancy = Occupancy(home)
    taking = threading.Thread(target=occupancy.take)
    taking.start()
    taking.join(0.3)
    assert taking.is_alive()

    holder.kill()

    taking.join(5)
    assert not taking.is_alive()
    occupancy.release()


def test_another_run_can_be_ended(home: Home, running: Holder) -> None:
    reaping = threading.Thread(target=running.process.wait)
    reaping.start()

    assert Occupancy(home).end_other() is True
    assert Occupancy(home).end_other() is False

    reaping.join(5)
