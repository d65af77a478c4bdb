"""What servers import before Django has loaded its apps."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["config.server", "config.celery", "config.guard"])
def test_it_can_be_imported_before_the_apps_are_loaded(module: str) -> None:
    """I1: uvicorn's protocol and Flower's application come first, and must not need models."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
