"""``leased``: a lease around a function or a plain Celery task."""

import inspect
from collections.abc import Iterator

import pytest
from celery.utils.functional import head_from_fun

from locks import Lease, LeaseHeld, LeaseLost, leased, release
from tests.lab.services import ValkeyServer


@leased("report:{report_id}", ttl=5, fenced=False)
def build(report_id: int, *, copies: int = 1, lease: Lease) -> tuple[str, int]:
    """Build it."""
    lease.check()
    return lease.key, copies


def test_the_function_runs_under_a_lease_on_its_arguments(locks: ValkeyServer) -> None:
    """D1"""
    assert build(7) == ("report:7", 1)
    assert build(report_id=8, copies=2) == ("report:8", 2)
    with locks.client() as client:
        assert client.keys("locks:lease:*") == []


def test_it_does_not_run_while_somebody_else_holds_it(locks: ValkeyServer) -> None:
    """D1"""
    Lease("report:7", ttl=5, owner="other").acquire()
    with pytest.raises(LeaseHeld):
        build(7)
    assert build(8) == ("report:8", 1)


def test_callers_do_not_see_the_lease(locks: ValkeyServer) -> None:
    """D1"""
    assert list(inspect.signature(build).parameters) == ["report_id", "copies"]
    assert build.__doc__ == "Build it."
    with pytest.raises(TypeError):
        build()
    # What Celery checks arguments with when a task is called.
    with pytest.raises(TypeError):
        head_from_fun(build)(7, lease=None)
    head_from_fun(build)(7, copies=1)


def test_a_function_that_outlived_its_lease_is_not_a_success(locks: ValkeyServer) -> None:
    """D2"""

    @leased("a", ttl=5, fenced=False)
    def work(*, lease: Lease) -> str:
        release("a", lease.owner)
        return "done"

    with pytest.raises(LeaseLost):
        work()


def test_it_has_a_fence(locks: ValkeyServer, fences: None) -> None:
    """D2"""

    @leased("a", ttl=5)
    def work(*, lease: Lease) -> int:
        return lease.fence

    first, second = work(), work()
    assert 0 < first < second


def test_defaults_count_as_arguments_of_the_key(locks: ValkeyServer) -> None:
    """D1"""

    @leased("page:{number}:{size}", ttl=5, fenced=False)
    def page(number: int, size: int = 20, *, lease: Lease) -> str:
        return lease.key

    assert page(1) == "page:1:20"


def test_a_key_that_names_no_argument_is_refused_at_once() -> None:
    """D1"""
    with pytest.raises(TypeError, match="user"):

        @leased("inventory:{user}", ttl=5)
        def sync(user_id: int) -> None: ...


def test_a_ttl_that_is_no_lease_is_refused_at_once() -> None:
    """D1"""
    with pytest.raises(ValueError, match="TTL"):
        leased("a", ttl=0.0001)


def test_what_would_run_after_its_lease_is_refused() -> None:
    """D1"""

    async def later() -> None: ...

    def bit_by_bit() -> Iterator[int]:
        yield 1

    for function in (later, bit_by_bit):
        with pytest.raises(TypeError, match="after its lease"):
            leased("a", ttl=5)(function)
