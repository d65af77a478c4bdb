"""A process to be killed: starts two sleepers and waits. Run with a directory as argument."""

import signal
import sys
from pathlib import Path

from deploy.local.launcher import Launcher
from tests.deploy.standins import sleeper


def main(directory: Path) -> None:
    launcher = Launcher(directory / "processes.json")
    launcher.popen(sleeper("store", directory / "journal", stage=0))
    launcher.popen(sleeper("worker", directory / "journal", stage=2))
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
