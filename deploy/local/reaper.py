"""Ends what a process started when that process is gone, even by ``kill -9``.

Run as ``python -m deploy.local.reaper REGISTER FILE…`` with a pipe as standard input whose
other end only the watched process holds. The files tell others where the programs are; they
are removed first. (The kernel's parent-death signal would be the other way;
it is Linux only, is lost when a server changes its user, fires when the *thread* that started
a child ends, and cannot shut a database down in order.)
"""

import os
import select
import sys
from pathlib import Path

from deploy.local import register


def main(path: Path, signs: list[Path]) -> None:
    parent = os.getppid()
    # A child that its parent forked without exec keeps the pipe open, so ask for both.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable and not os.read(0, 4096):
            break
    for sign in signs:
        sign.unlink(missing_ok=True)
    register.end_all(register.read(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
