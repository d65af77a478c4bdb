"""The breaker and the retry budget, on the real server and without it."""

import multiprocessing
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from pytest_django import Settings

from operations import DependencyError, NotReady, Refused
from operations.dependencies import Breaker, Budget, Dependency, calling, shared
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until

QUICK = Breaker(
    window=2,
    minimum=5,
    cooldown=0.4,
    longest_cooldown=1,
    ramp_start=2,
    ramp_doubling=1,
    ramp=4,
)

Make = Callable[..., Dependency]


@pytest.fixture
def make() -> Make:
    def make(breaker: Breaker = QUICK, **options: Any) -> Dependency:
        return Dependency(
            f"test-{secrets.token_hex(4)}",
            connect_timeout=0.2,
            total_timeout=0.5,
            breaker=breaker,
            **options,
        )

    return make


@pytest.fixture(autouse=True)
def _nobody_rests() -> Iterator[None]:
    """What a test did to the server is no reason for the next one to leave it alone."""
    yield
    shared._server_at.cache_clear()


@pytest.fixture(params=["shared", "alone"])
def either(request: pytest.FixtureRequest, locks: ValkeyServer, settings: Settings) -> None:
    """With the server of the shared state, and with nothing at its address."""
    if request.param == "alone":
        settings.LOCKS_URL = "redis://127.0.0.1:1/0"


def fail(dependency: Dependency, times: int = 1, error: BaseException | None = None) -> int:
    """Calls that end like this; how many there were."""
    raised = error or DependencyError(dependency.name, "down")
    made = 0
    for _ in range(times):
        with suppress(NotReady, type(raised)), dependency.call():
            made += 1
            raise raised
    return made


def succeed(dependency: Dependency) -> bool:
    """One call that succeeds, if there may be one."""
    try:
        with dependency.call():
            return True
    except NotReady:
        return False


def test_it_opens_when_enough_of_enough_calls_fail(either: None, make: Make) -> None:
    """B7: and not for fewer than the minimum, nor for a smaller share."""
    dependency = make()
    assert [succeed(dependency) for _ in range(6)] == [True] * 6
    assert fail(dependency, 5) == 5
    assert succeed(dependency)
    assert fail(dependency, 10) == 2  # seven of fourteen
    with pytest.raises(NotReady) as refusal, dependency.call():
        pass
    assert refusal.value.dependency == dependency.name
    assert refusal.value.delay > 0


@pytest.mark.parametrize(
    ("error", "sick"),
    [
        (DependencyError("x"), True),
        (SoftTimeLimitExceeded(), True),
        (Refused("declined"), False),
        (NotReady(1), False),
        (KeyError("a bug"), False),
    ],
    ids=["unavailable", "time limit inside the call", "refused", "not ready", "bug"],
)
def test_only_what_is_the_dependencys_fault_opens_it(
    either: None, make: Make, error: Exception, sick: bool
) -> None:
    """B5 B7"""
    dependency = make()
    fail(dependency, 12, error)
    assert succeed(dependency) is not sick


def test_calls_too_slow_to_fill_a_window_open_it_too(either: None, make: Make) -> None:
    """B7: every one of them fails, one every half window."""
    dependency = make(Breaker(window=0.2, minimum=5, cooldown=5))
    for _ in range(5):
        assert fail(dependency) == 1
        time.sleep(0.1)
    assert not succeed(dependency)


def test_half_open_lets_one_try_and_closes_when_that_succeeds(either: None, make: Make) -> None:
    """B7"""
    dependency = make()
    fail(dependency, 5)
    assert not succeed(dependency)
    wait_until(lambda: dependency.look().state == "half")
    with dependency.call():
        assert not succeed(dependency)
        time.sleep(1.2 * dependency.total_timeout)
        assert not succeed(dependency), "its place is kept for longer than a call can take"
    assert succeed(dependency)


def test_a_probe_that_fails_opens_it_for_longer(either: None, make: Make) -> None:
    """B7"""
    dependency = make()
    fail(dependency, 5)
    wait_until(lambda: dependency.look().state == "half")
    assert fail(dependency) == 1
    time.sleep(0.6)  # the first cool-down would be over
    assert not succeed(dependency)
    wait_until(lambda: succeed(dependency), timeout=2)


def test_a_probe_that_says_nothing_is_given_up(locks: ValkeyServer, make: Make) -> None:
    """B7: its process was killed."""
    dependency = make()
    fail(dependency, 5)
    wait_until(lambda: dependency.look().state == "half")
    assert dependency._admit("killed", first=True, retry=False).verdict == "probe"
    assert not succeed(dependency)
    wait_until(lambda: succeed(dependency), timeout=5)


def test_the_recovery_is_a_ramp(locks: ValkeyServer, make: Make) -> None:
    """B7: four attempts in the first second, then eight, then sixteen, at last all."""
    dependency = make(replace(QUICK, ramp_start=4))
    fail(dependency, 5)
    wait_until(lambda: succeed(dependency), timeout=3)
    started = time.monotonic()
    counted: list[int] = []
    for second in range(1, 4):
        counted.append(0)
        while time.monotonic() < started + second:
            counted[-1] += succeed(dependency)
            time.sleep(0.005)
    assert counted[0] <= 4 + 2  # seconds here and there are not quite the same
    assert counted[0] < counted[1] < counted[2] <= 16 + 2
    wait_until(lambda: dependency.look().state == "closed", timeout=3)
    assert [succeed(dependency) for _ in range(100)] == [True] * 100


def test_a_dependency_may_ask_to_be_left_alone(locks: ValkeyServer, make: Make) -> None:
    """B7: Retry-After, when the breaker opens; bounded."""
    dependency = make(Breaker(window=2, minimum=2, cooldown=0.1, longest_cooldown=30))
    fail(dependency, 2, DependencyError("x", retry_after=20))
    assert 15 < dependency.look().wait <= 20
    dependency = make(Breaker(window=2, minimum=2, cooldown=0.1, longest_cooldown=30))
    fail(dependency, 2, DependencyError("x", retry_after=1e9))
    assert 25 < dependency.look().wait <= 30


def test_retries_keep_to_their_budget(either: None, make: Make) -> None:
    """B6 B7: a fifth of the first tries, and a floor; the calls of one attempt count once."""
    dependency = make(budget=Budget(share=0.2, floor=0.1, window=60))
    with calling(retry=True, waited=0):
        assert [succeed(dependency) for _ in range(10)] == [True] * 10
    for _ in range(20):
        with calling(retry=False, waited=0):
            assert succeed(dependency)
    made = 0
    for _ in range(30):
        with calling(retry=True, waited=0):
            made += succeed(dependency)
    assert made == 6 + 4 - 1
    with calling(retry=False, waited=0):
        assert succeed(dependency)


def refusals(dependency: Dependency, waited: float) -> list[float]:
    """The delays of five calls that may not be made."""
    delays = []
    for _ in range(5):
        with (
            calling(retry=False, waited=waited),
            pytest.raises(NotReady) as refusal,
            dependency.call(),
        ):
            pass
        delays.append(refusal.value.delay)
    assert len(set(delays)) == len(delays), "never all of them for the same time"
    return delays


@pytest.mark.parametrize("waited", [0, 600])
def test_who_is_put_off_comes_back_soon_however_long_it_has_waited(
    locks: ValkeyServer, make: Make, waited: float
) -> None:
    """B6 B7: it is sent when the breaker allows it, so nobody sleeps on when it is over."""
    dependency = make(replace(QUICK, cooldown=30, longest_cooldown=60))
    fail(dependency, 5)
    assert all(0.5 <= delay <= 3 for delay in refusals(dependency, waited))
    first = dependency.refusal(waited)
    assert first is not None
    assert first.delay <= 3
    dependency = make(replace(QUICK, cooldown=0.1, ramp_start=1, ramp_doubling=30, ramp=60))
    fail(dependency, 5)
    wait_until(lambda: succeed(dependency))
    wait_until(lambda: not succeed(dependency))
    with calling(retry=False, waited=waited), pytest.raises(NotReady) as refusal:
        while True:
            with dependency.call():
                pass
    assert refusal.value.delay <= 3


def test_alone_who_has_waited_long_waits_longer(make: Make, settings: Settings) -> None:
    """B6: nobody else holds thousands of them back then."""
    settings.LOCKS_URL = "redis://127.0.0.1:1/0"
    dependency = make()
    fail(dependency, 5)
    assert all(30 <= delay <= 45 for delay in refusals(dependency, 600))
    assert all(delay <= 2 for delay in refusals(dependency, 0))


def test_who_exceeds_the_budget_waits_longer_the_longer_it_has_waited(
    either: None, make: Make
) -> None:
    """B6: the dispatcher does not see which operations are retries."""
    dependency = make(budget=Budget(share=0, floor=0.1, window=10))
    with calling(retry=True, waited=0):
        assert succeed(dependency)
    for waited, least, most in ((0, 1, 1.5), (10, 5, 7.5), (600, 30, 45)):
        with (
            calling(retry=True, waited=waited),
            pytest.raises(NotReady, match="retries") as refusal,
            dependency.call(),
        ):
            pass
        assert least <= refusal.value.delay <= most


def _one_of_many(
    name: str, url: str, start: Any, called: Any, refused: Any, order: Any
) -> None:  # pragma: no cover  (in a child)
    from django.conf import settings

    settings.LOCKS_URL = url
    dependency = Dependency(name, connect_timeout=0.2, total_timeout=60, breaker=QUICK)
    order.release()
    start.wait(60)
    try:
        with dependency.call():
            with called.get_lock():
                called.value += 1
            # Until all others have asked: who comes after the probe's end may be the next.
            for _ in range(31):
                refused.acquire(timeout=60)
            raise DependencyError(name, "still down")
    except NotReady:
        refused.release()
    except DependencyError:
        pass


def test_of_32_processes_exactly_one_probes(locks: ValkeyServer, make: Make) -> None:
    """B7: the shared state is on a server, the decision is one script."""
    dependency = make(Breaker(window=2, minimum=5, cooldown=0.2))
    fail(dependency, 5)
    wait_until(lambda: dependency.look().state == "half")
    context = multiprocessing.get_context("fork")
    start, called = context.Event(), context.Value("i", 0)
    ready, refused = context.Semaphore(0), context.Semaphore(0)
    from operations.dependencies import dependency as module

    known = module._registered.pop(dependency.name)
    children = [
        context.Process(
            target=_one_of_many, args=(known.name, locks.url, start, called, refused, ready)
        )
        for _ in range(32)
    ]
    try:
        for child in children:
            child.start()
        for _ in children:
            assert ready.acquire(timeout=60)
        start.set()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    finally:
        module._registered[known.name] = known
        for child in children:
            if child.is_alive():
                child.kill()
    assert called.value == 1


def test_calls_go_on_when_the_server_goes(locks: ValkeyServer, make: Make) -> None:
    """B7: it fails open, to a breaker of each process's own; and comes back by itself."""
    dependency = make()
    assert succeed(dependency)
    locks.kill()
    assert [succeed(dependency) for _ in range(20)] == [True] * 20
    assert fail(dependency, 50) < 50
    assert not succeed(dependency)
    locks.start()
    wait_until(lambda: succeed(dependency), timeout=5)


def test_a_frozen_server_does_not_hold_calls_up(locks: ValkeyServer, make: Make) -> None:
    """B7: one time-out, then it is left alone for a while."""
    dependency = make()
    assert succeed(dependency)
    locks.stop()
    started = time.monotonic()
    assert [succeed(dependency) for _ in range(20)] == [True] * 20
    assert time.monotonic() - started < 2


def test_a_clock_that_is_set_back_does_not_keep_it_open(locks: ValkeyServer, make: Make) -> None:
    """B7: an instant further away than it can be is taken for the furthest possible."""
    dependency = make()
    fail(dependency, 5)
    with locks.client() as client:
        key = f"sekali:dependency:{dependency.name}"
        assert client.hget(key, "open_until") is not None
        client.hset(key, "open_until", int((time.time() + 3600) * 1000))
    assert dependency.look().wait <= QUICK.longest_cooldown
