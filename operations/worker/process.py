"""How a claim names the process that made it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def process_name(node: str, pid: int) -> str:
    """``node/pid.start``: the start time tells a process from a later one of the same number.

    :raises ProcessLookupError: there is no such process
    """
    return f"{node}/{pid}.{_start_of(pid)}"


def own_process_name(node: str) -> str:
    """The same for this process."""
    return _own(node, os.getpid())


@cache
def _own(node: str, pid: int) -> str:
    return process_name(node, pid)


def _start_of(pid: int) -> str:
    """Start in clock ticks since boot, field 22 of ``/proc/PID/stat``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    # The command, in parentheses, may itself hold blanks and parentheses.
    return stat.rpartition(")")[2].split()[19]


@contextmanager
def alone() -> Iterator[None]:
    """Only the process that enters leaves.

    A handler may fork and let the copy run on; that would go back to Celery's loop and
    answer for the same task a second time.
    """
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)
