"""The directory, lifted into somebody else's project, by what its README says."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import locks as lifted
from tests.lab.services import PostgresServer, ValkeyServer

HOME = Path(lifted.__file__).parent
EXAMPLE = re.findall(r"```python\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)[0]

_SETTINGS = """
import os
import sys
import dj_url

sys.modules["django_redis"] = None  # cannot be imported: it is not among what is asked for
SECRET_KEY = "somebody else's"
INSTALLED_APPS = ["locks", "reports"]
DATABASES = {"default": dj_url.database(os.environ["DATABASE_URL"])}
LOCKS_URL = os.environ["LOCKS_URL"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = False
TIME_ZONE = "Asia/Jakarta"
"""
_URL = """
from urllib.parse import unquote, urlsplit

def database(url):
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:],
        "USER": unquote(parts.username), "PASSWORD": unquote(parts.password),
        "HOST": parts.hostname, "PORT": parts.port,
    }
"""
_MODELS = """
from django.db import models

class Report(models.Model):
    body = models.TextField(default="")
    fence = models.BigIntegerField(default=0)
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, postgres: PostgresServer, locks: ValkeyServer) -> Iterator[Run]:
    """``run("migrate")`` is ``manage.py migrate`` of a project that has nothing else of ours."""
    shutil.copytree(HOME, tmp_path / "locks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "__init__.py").touch()
    for name, text in {
        "project.py": _SETTINGS,
        "dj_url.py": _URL,
        "reports/models.py": _MODELS,
    }.items():
        (tmp_path / name).write_text(text)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    env = {
        **kept,
        "PYTHONPATH": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "project",
        "DATABASE_URL": postgres.create("somebody_elses"),
        "LOCKS_URL": locks.url,
    }

    def run(*arguments: str, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "django", *arguments],
            cwd=tmp_path,
            env={**env, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    yield run
    postgres.drop("somebody_elses")


_USE = """
import importlib.util
from celery import Celery
from reports.models import Report

assert importlib.util.find_spec("operations") is None, "not alone"
app, pages, text = Celery(), [1, 2], "the text"
operation, epoch = "4711", 3
Report.objects.create(pk=42)

{example}

written = Report.objects.get(pk=42)
assert written.body == text
assert written.fence > 0
build_report(7)
kept = Lease("report:43", ttl=60, owner="me")
assert kept.acquire()
for backend in ("valkey", "postgres"):
    with Lease("report:44", ttl=30, backend=backend) as lease:
        assert lease.fence > written.fence
print("all well")
"""


def test_its_readme_is_all_that_another_project_needs(run: Run) -> None:
    """D1 D2 D3 D4: the example as it stands there, both stores, and the command.

    The command would be stopped by an error of a system check.
    """
    run("migrate", "--run-syncdb")
    assert "all well" in run("shell", "-c", textwrap.dedent(_USE).format(example=EXAMPLE))
    assert "report:43" in run("leases")
    assert "Freed report:43" in run("leases", "--release", "report:43", "--reason", "stuck")
