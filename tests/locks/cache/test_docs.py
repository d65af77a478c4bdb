"""The docs list the entries as they are."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_in_the_docs_is_what_caches_prints() -> None:
    """E1: to renew it, put the output of `manage.py caches --markdown` there."""
    command = [sys.executable, "manage.py", "caches", "--markdown"]
    environment = {**os.environ, "EXTRA_APPS": ""}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    page = (ROOT / "docs" / "cache.md").read_text()
    table = page.partition("<!-- caches -->\n")[2].partition("<!-- /caches -->")[0]
    assert table == printed
    assert table.count("\n") >= 2 + 4
