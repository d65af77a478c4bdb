"""A lease around a whole function or Celery task."""

import inspect
from collections.abc import Callable
from functools import wraps
from string import Formatter
from typing import Any, TypeVar

from locks.backend import Backend
from locks.lease import Lease

T = TypeVar("T")


def leased(
    key: str,
    *,
    ttl: float,
    wait: float = 0,
    backend: Backend | str | None = None,
    fenced: bool = True,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Run the function only while holding the lease, which is renewed meanwhile.

    ``key`` may name arguments of the function: ``"report:{report_id}"``. A function that
    has a keyword-only argument ``lease`` is given the lease (its ``fence``, ``check()``);
    its callers do not see that argument. Under Celery, put this below the task decorator::

        @app.task(autoretry_for=(LeaseHeld, LeaseUnavailable), retry_backoff=5)
        @leased("report:{report_id}", ttl=30)
        def build_report(report_id: int, *, lease: Lease) -> None: ...

    A call raises :class:`LeaseHeld`, :class:`LeaseUnavailable`, or :class:`LeaseLost` when
    the function ended well but the lease had not lasted. Raises :class:`TypeError` at once
    for a key that names no argument, and :class:`ValueError` for a TTL or wait that is not
    possible. Generators and coroutines are refused: they would run after the lease.
    """
    Lease("checked-here", ttl=ttl, wait=wait, backend=backend)

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__qualname__} would run after its lease has ended.")
        signature = inspect.signature(function)
        wanted = signature.parameters.get("lease")
        passes = wanted is not None and wanted.kind is inspect.Parameter.KEYWORD_ONLY
        seen = signature.replace(
            parameters=[
                parameter
                for name, parameter in signature.parameters.items()
                if not (passes and name == "lease")
            ]
        )
        _check_names(key, seen)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> T:
            bound = seen.bind(*args, **kwargs)
            bound.apply_defaults()
            named = key.format(**bound.arguments)
            with Lease(named, ttl=ttl, wait=wait, backend=backend, fenced=fenced) as lease:
                if passes:
                    return function(*args, lease=lease, **kwargs)
                return function(*args, **kwargs)

        run.__signature__ = seen  # type: ignore[attr-defined]
        return run

    return decorate


def _check_names(key: str, signature: inspect.Signature) -> None:
    for _, field, _, _ in Formatter().parse(key):
        if field is None:
            continue
        name = field.split(".")[0].split("[")[0]
        if name not in signature.parameters:
            raise TypeError(f"The key {key!r} names {name!r}, which is no argument.")
