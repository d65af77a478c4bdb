"""The signal of the soft time limit, in the children of the pool."""

from types import FrameType
from typing import Any

from billiard import pool
from billiard.exceptions import SoftTimeLimitExceeded
from celery import bootsteps, current_task

from operations.interruptible import interrupt
from operations.worker.request import OperationRequest


class SoftLimit(bootsteps.Step):  # type: ignore[misc]
    """A step of the worker: its children take the signal as ``operations.interruptible`` does."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        # Billiard installs what it finds under this name, after every hook of ours.
        pool.soft_timeout_sighandler = _on_signal


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    task = current_task
    if not task:
        return  # it came too late; nothing is at work
    if task.Request == f"{OperationRequest.__module__}:{OperationRequest.__qualname__}":
        interrupt()
    else:
        raise SoftTimeLimitExceeded
