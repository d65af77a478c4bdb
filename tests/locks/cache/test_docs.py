"""The docs list the entries as they are."""

from io import StringIO
from pathlib import Path

from django.core.management import call_command

from locks.cache import entries

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_in_the_docs_is_what_caches_prints() -> None:
    """E1: to renew it, put the output of `manage.py caches --markdown` there."""
    out = StringIO()
    ours = [entry.name for entry in entries() if not entry.declared_in.startswith("tests.")]
    call_command("caches", *ours, "--markdown", stdout=out)
    page = (ROOT / "docs" / "cache.md").read_text()
    table = page.partition("<!-- caches -->\n")[2].partition("<!-- /caches -->")[0]
    assert table == out.getvalue()
    assert table.count("\n") >= 2 + 4
