"""The processes of the platform: how each is started and asked to end."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local.launcher import Command
from deploy.local.ports import HOST

_PYTHON = [sys.executable, "-u"]


def api(env: Mapping[str, str], port: int, *, processes: int = 2, name: str = "api") -> Command:
    """The HTTP API: one listening main process and its server processes."""
    return _command(
        name,
        "api",
        env,
        *_module("uvicorn", "config.asgi:application", "--http", "config.server:Protocol"),
        *("--host", HOST, "--port", str(port), "--workers", str(processes)),
        *("--timeout-graceful-shutdown", "5", "--no-access-log"),
        stage=4,
    )


def worker(
    env: Mapping[str, str], name: str = "worker", *, concurrency: int = 2, queues: str = ""
) -> Command:
    """A Celery worker; ``queues`` separated by commas, by default all."""
    return _command(
        name,
        "worker",
        env,
        *_module("celery", "-A", "config", "worker", "-n", f"{name}@%h"),
        *("--concurrency", str(concurrency), "--loglevel", "INFO"),
        # Workers need not know of each other; looking for neighbours costs a second.
        *("--without-gossip", "--without-mingle"),
        *(("-Q", queues) if queues else ()),
        stage=2,
        # Longer than the worker's own soft shutdown, which hands running work back.
        grace_s=15,
    )


def beat(env: Mapping[str, str], schedule: Path) -> Command:
    """Celery's clock; ``schedule`` is the file where it remembers what ran."""
    return _command(
        "beat",
        "beat",
        env,
        *_module("celery", "-A", "config", "beat", "--schedule", str(schedule), "--pidfile="),
        stage=3,
    )


def dispatcher(env: Mapping[str, str], name: str = "dispatcher") -> Command:
    """Sends what is due; any number may run."""
    return _command(name, "dispatcher", env, "manage.py", "dispatch", stage=3)


def flower(env: Mapping[str, str], port: int) -> Command:
    """Flower, for this machine only: it has no users of its own.

    Its list of tasks needs events from the workers, which cost them much of their throughput;
    so Flower asks for events only where ``WORKER_EVENTS`` wants them, too.
    """
    events = env.get("WORKER_EVENTS", "").lower() in {"1", "true", "yes"}
    return _command(
        "flower",
        "manage",
        env,
        *_module("celery", "-A", "config", "flower", f"--address={HOST}", f"--port={port}"),
        f"--enable_events={events}",
        stage=3,
    )


def sandbox(env: Mapping[str, str], port: int, ledger: Path) -> Command:
    """The stand-in for payment gateway and supplier; ``ledger`` is its database file."""
    return _command(
        "sandbox",
        "manage",
        env,
        *_module("deploy.sandbox", "--host", HOST, "--port", str(port), "--db", str(ledger)),
        stage=1,
    )


def fill(env: Mapping[str, str], tokens: Path) -> Command:
    """Migrations and demo data; ``tokens`` is the file where the demo's tokens are kept."""
    return _command("fill", "manage", env, *_module("deploy.local.fill", str(tokens)), stage=3)


def manage(env: Mapping[str, str], *arguments: str) -> Command:
    """One run of ``manage.py``."""
    return _command(arguments[0], "manage", env, "manage.py", *arguments, stage=3)


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", name, *arguments)


def _command(
    name: str,
    role: str,
    env: Mapping[str, str],
    *arguments: str,
    stage: int,
    grace_s: float = 10,
) -> Command:
    return Command(
        name=name,
        argv=[*_PYTHON, *arguments],
        env={**os.environ, **env, "SEKALI_ROLE": role},
        stop_signal=signal.SIGTERM,
        grace_s=grace_s,
        stage=stage,
    )
