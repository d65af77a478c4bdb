"""``leased`` below a plain Celery task, in a real worker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from celery.app.task import Task

from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until

OPTIONS = ["--pool", "threads", "--concurrency", "4", "--without-mingle", "--without-gossip"]


@pytest.fixture
def build_report(
    locks: ValkeyServer, broker: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Task]:
    """The task, with a worker of four threads that runs it."""
    monkeypatch.setenv("LOCKS_URL", locks.url)
    monkeypatch.setenv("BROKER_URL", broker.url)
    from tests.locks import celery_app

    app: Celery = celery_app.app
    app.conf.broker_url = broker.url
    with (tmp_path / "worker.log").open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tests.locks.celery_app", "worker", *OPTIONS],
            stdout=output,
            stderr=output,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
        )
    yield celery_app.build_report
    worker.terminate()
    worker.wait(timeout=20)
    app.close()


def test_calls_for_one_key_run_one_after_the_other(build_report: Task, locks: ValkeyServer) -> None:
    """D1: and those for another key beside them."""
    for report in (1, 1, 1, 2):
        build_report.delay(report, "log")
    with locks.client() as client:
        wait_until(lambda: client.llen("log") == 8, timeout=30)
        lines = [line.decode() for line in client.lrange("log", 0, -1)]
    ones = [line for line in lines if line.endswith("1")]
    assert ones == ["begin 1", "end 1"] * 3
    assert lines.index("begin 2") < 3


def test_a_call_with_wrong_arguments_is_refused_where_it_is_made(build_report: Task) -> None:
    """D1: the argument that the lease is passed in is not the caller's."""
    with pytest.raises(TypeError):
        build_report.delay(1, "log", lease="mine")
    with pytest.raises(TypeError):
        build_report.delay()
