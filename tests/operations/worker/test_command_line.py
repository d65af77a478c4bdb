"""Celery's own commands, as an operator types them."""

import subprocess
import sys

import pytest

from tests.lab.processes import Stack

pytestmark = pytest.mark.req("B2", "I1")

KIND = "scripted.local"


def celery(stack: Stack, *arguments: str) -> str:
    """What the command prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "config", *arguments],
        env=stack.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_the_commands_for_operators_reach_a_worker(stack: Stack) -> None:
    """I1: they connect before any task is imported."""
    stack.start(apis=0, dispatchers=0, sandbox=False)
    assert "1 node online" in celery(stack, "inspect", "ping", "--timeout", "5")
    limit = ("rate_limit", KIND, "100/s")
    assert "new rate limit set" in celery(stack, "control", *limit, "--timeout", "5")
    assert "software" in celery(stack, "report")


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_pool_that_is_not_of_processes_is_refused(stack: Stack, pool: str) -> None:
    """B8: neither time limits nor the rescue of what was lost would hold."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "config", "worker", "--pool", pool],
        env=stack.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "--pool=prefork" in done.stdout + done.stderr
