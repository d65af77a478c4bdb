"""Processes that hold the places of a bulkhead, as the children of a worker do."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operations.dependencies import Dependency, bulkhead


@contextmanager
def a_pool(size: int) -> Iterator[None]:
    """This process is one of so many of a worker, which share bulkheads."""
    before = bulkhead._pool
    bulkhead.set_pool(size)
    try:
        yield
    finally:
        bulkhead._pool = before


@contextmanager
def holders(dependency: Dependency, count: int) -> Iterator[int]:
    """So many other processes want a place, and keep what they get; how many got one."""
    context = multiprocessing.get_context("fork")
    answers, release = context.SimpleQueue(), context.Event()
    children = [
        context.Process(target=_hold, args=(dependency, answers, release)) for _ in range(count)
    ]
    for child in children:
        child.start()
    try:
        yield sum(answers.get() for _ in children)
    finally:
        release.set()
        for child in children:
            child.join(10)
            if child.is_alive():
                child.kill()


@contextmanager
def a_full_bulkhead(dependency: Dependency) -> Iterator[None]:
    """Others of the pool hold all places."""
    with a_pool(4), holders(dependency, 3) as held:
        assert held == 3
        yield


def _hold(dependency: Dependency, answers: Any, release: Any) -> None:
    # Forked while this process calls, it would take its parent's call for its own.
    dependency._bulkhead._mine = threading.Lock()
    with dependency._bulkhead.place() as place:
        answers.put(bool(place))
        release.wait(20)
