"""Leases of a worker's children show its node name to operators."""

from typing import Any

from celery import bootsteps

from locks import process


class NodeName(bootsteps.Step):  # type: ignore[misc]
    """A step of the worker that has done its work when it is made, before any child is forked."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        process.call_it(str(parent.hostname))
