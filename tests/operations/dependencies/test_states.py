"""What operators are told of dependencies, in numbers."""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client as Browser

from inventory.operations import SUPPLIER
from operations import DependencyError, NotReady
from operations.dependencies import Breaker, Budget, Dependency, Unshared, calling, shared, states
from tests.lab.processes import Stack
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.dependencies.outside import Outside
from tests.operations.dependencies.places import a_pool
from tests.operations.dependencies.test_sick import many

pytestmark = pytest.mark.req("B7", "H6")


@pytest.fixture
def dependency(locks: ValkeyServer) -> Iterator[Dependency]:
    yield Dependency(
        f"test-{secrets.token_hex(4)}",
        connect_timeout=0.2,
        total_timeout=0.5,
        breaker=Breaker(window=30, minimum=5, cooldown=2, ramp_start=3, ramp=20),
        budget=Budget(share=0.5, floor=0.1, window=100),
    )
    shared._server_at.cache_clear()


def call(dependency: Dependency, *, fails: bool = False, retry: bool = False) -> None:
    with (
        suppress(NotReady, DependencyError),
        calling(retry=retry, waited=0),
        dependency.call(),
    ):
        if fails:
            raise DependencyError(dependency.name)


def test_a_dependency_that_nobody_has_called(dependency: Dependency) -> None:
    """H6"""
    state = dependency.state()
    assert (state.state, state.calls_per_second, state.failure_ratio) == ("closed", 0, None)
    assert (state.budget_left, state.calls_under_way, state.workers) == (10, 0, [])
    assert state.name in [known.name for known in states()]


def test_calls_failures_and_the_budget_are_counted(dependency: Dependency) -> None:
    """B7 H6"""
    for _ in range(8):
        call(dependency)
    for _ in range(3):
        call(dependency, retry=True)
    call(dependency, fails=True)
    state = dependency.state()
    assert state.state == "closed"
    assert state.calls_per_second == 12 / 30
    assert state.failure_ratio == round(1 / 12, 4)
    assert state.budget_left == 10 + 0.5 * 9 - 3


def test_a_breaker_is_followed_from_open_to_recovering(dependency: Dependency) -> None:
    """B7 H6"""
    for _ in range(5):
        call(dependency, fails=True)
    state = dependency.state()
    assert state.state == "open"
    assert 0 < state.opens_in <= 2
    wait_until(lambda: dependency.state().state == "half-open")
    call(dependency)
    state = dependency.state()
    assert state.state == "recovering"
    assert state.recovery_rate is not None
    assert state.recovery_rate >= 3


def test_calls_under_way_are_told_by_worker(dependency: Dependency) -> None:
    """B7 H6: how much of its share a dependency holds."""
    with a_pool(4), dependency.call():
        state = dependency.state()
        assert state.calls_under_way == 1
        assert [(share.calls, share.places) for share in state.workers] == [(1, 3)]
        assert state.share_in_use == pytest.approx(1 / 3)
    assert dependency.state().calls_under_way == 0
    assert dependency._admit("killed", first=True, retry=False).allowed
    assert dependency.state().calls_under_way == 1
    wait_until(lambda: dependency.state().calls_under_way == 0, timeout=6)


def command(*options: str) -> tuple[int, str, str]:
    """Exit status and what it says."""
    out, err = StringIO(), StringIO()
    try:
        call_command("dependencies", *options, stdout=out, stderr=err)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_the_command_tells_each(dependency: Dependency) -> None:
    """H6"""
    for _ in range(5):
        call(dependency, fails=True)
    status, text, _ = command()
    assert status == 0
    (line,) = [line for line in text.splitlines() if line.startswith(dependency.name)]
    assert "open, one may try in" in line
    told = json.loads(command("--json")[1])
    assert told["shared"] is True
    by_name = {state["name"]: state for state in told["dependencies"]}
    assert by_name[dependency.name]["state"] == "open"
    assert by_name.keys() >= {"payments", "supplier"}


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_without_the_server_it_says_so_and_does_not_hang(
    dependency: Dependency, locks: ValkeyServer, how: str
) -> None:
    """I1 H6"""
    call(dependency)
    (locks.kill if how == "killed" else locks.stop)()
    started = time.monotonic()
    status, text, said = command("--json")
    assert time.monotonic() - started < 5
    assert status == 1
    assert json.loads(text) == {"shared": False, "dependencies": []}
    assert "does not answer" in said
    assert "judges for itself" in command()[2]
    with pytest.raises(Unshared):
        states()


@pytest.mark.django_db(transaction=True)
def test_the_admin_shows_the_breakers_of_each_kind(locks: ValkeyServer) -> None:
    """H6"""
    browser = Browser()
    browser.force_login(User.objects.create(username="c", is_staff=True, is_superuser=True))
    page = browser.get("/admin/operations/kindcontrol/").content.decode()
    assert "supplier: closed" in page
    locks.kill()
    shared._server_at.cache_clear()
    wait_until(lambda: not SUPPLIER.look().shared)
    page = browser.get("/admin/operations/kindcontrol/").content.decode()
    assert "supplier: unknown" in page
    shared._server_at.cache_clear()


def test_workers_that_wait_are_seen_from_outside(stack: Stack) -> None:
    """B7 H6: their own processes, through the command."""
    with Outside() as outside:
        outside.mode = "hang"
        stack.env |= {"SUPPLIER_URL": outside.url, "SUPPLIER_TIMEOUT": "8"}
        stack.start(apis=0, workers=0, sandbox=False)
        stack.add_worker(concurrency=4)
        many(10)
        wait_until(lambda: len(outside.calls) >= 3)
        told = json.loads(stack.manage("dependencies", "--json"))
        (state,) = [one for one in told["dependencies"] if one["name"] == "supplier"]
        assert (state["calls_under_way"], state["share_in_use"]) == (3, 1)
        assert [(one["calls"], one["places"]) for one in state["workers"]] == [(3, 3)]
