"""What ``make`` says while a fresh clone waits."""

import os
import shutil
import subprocess
from pathlib import Path

from deploy.local.launcher import TREE


def test_a_fresh_clone_says_that_it_installs_before_it_does(tmp_path: Path) -> None:
    """I1: here pip is missing, so that what was printed came before it."""
    for name in ("Makefile", "requirements.txt", "requirements-local.txt"):
        shutil.copy(TREE / name, tmp_path)
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    done = subprocess.run(
        ["make", "PYTHON=true", "up"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout.startswith("installing"), done.stdout
