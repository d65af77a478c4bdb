"""A handler that forks must not have its copy speak on the parent's connections."""

import os
from typing import Any

from celery import bootsteps, signals
from django.db import connections

# Never closed and never collected: both would say goodbye on the parent's socket.
_kept: list[Any] = []


class ForkGuard(bootsteps.Step):  # type: ignore[misc]
    """A step of the worker: what the children of its pool fork starts without connections."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        signals.worker_process_init.connect(_guard, weak=False)


def _guard(**_: object) -> None:
    os.register_at_fork(after_in_child=_forget_connections)


def _forget_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        _kept.append(connection.connection)
        if connection.in_atomic_block:
            # The transaction is the parent's; here it can only be left.
            connection.closed_in_transaction = True
            connection.needs_rollback = True
        connection.connection = None
