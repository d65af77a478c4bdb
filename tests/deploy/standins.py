"""Small programs that stand in for the platform's own."""

import os
import sys
import textwrap
from pathlib import Path

import psutil

from deploy.local.launcher import Command


def python(
    name: str, script: str, *arguments: object, grace_s: float = 5, stage: int = 1
) -> Command:
    """A command that runs a piece of Python."""
    return Command(
        name=name,
        argv=[sys.executable, "-u", "-c", textwrap.dedent(script), *map(str, arguments)],
        env=dict(os.environ),
        grace_s=grace_s,
        stage=stage,
    )


def sleeper(name: str, journal: Path, *, stage: int = 1) -> Command:
    """Notes in the journal (a line each) that it began, with its pid, and that it ended."""
    return python(
        name,
        """
        import os, signal, sys
        name, journal = sys.argv[1:]
        def note(what):
            with open(journal, "a") as stream:
                stream.write(f"{name} {what}\\n")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        note(f"began {os.getpid()}")
        signal.sigwait({signal.SIGTERM})
        note("ended")
        """,
        name,
        journal,
        stage=stage,
    )


def lines(journal: Path) -> list[str]:
    """What the journal holds so far."""
    return journal.read_text().splitlines() if journal.exists() else []


def pids(journal: Path, name: str) -> list[int]:
    """The pids with which the named sleeper began, in order."""
    begun = [line.split() for line in lines(journal)]
    return [int(words[2]) for words in begun if words[:2] == [name, "began"]]


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or its parent need only ask for its exit code."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
