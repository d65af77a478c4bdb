"""Tells the bulkheads how large the pool is, before its children are forked."""

from typing import Any

from celery import bootsteps

from operations.dependencies.bulkhead import set_pool


class PoolShare(bootsteps.Step):  # type: ignore[misc]
    """A step of the worker that has done its work when it is made."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        set_pool(int(parent.concurrency or 1))
