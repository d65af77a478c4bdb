"""Who this process is, as an operator reads it in the list of leases."""

import socket

HOST = socket.gethostname()

_names: list[str] = []


def call_it(name: str) -> None:
    """Give this process (and its later children) a name, e.g. a worker's node name."""
    _names[:] = [name]


def name() -> str:
    """The name given by :func:`call_it`; empty when none was."""
    return _names[0] if _names else ""
