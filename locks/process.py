"""Who this process is, as an operator reads it in the list of leases."""

import json
import os
import socket
from functools import cache

HOST = socket.gethostname()

_names: list[str] = []


def call_it(name: str) -> None:
    """Give this process (and its later children) a name, e.g. a worker's node name."""
    _names[:] = [name]
    described.cache_clear()


def name() -> str:
    """The name given by :func:`call_it`; empty when none was."""
    return _names[0] if _names else ""


@cache
def described() -> str:
    """JSON of host, pid and name."""
    return json.dumps([HOST, os.getpid(), name()])


os.register_at_fork(after_in_child=described.cache_clear)
