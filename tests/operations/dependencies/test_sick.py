"""A dependency that is down or slow, with work waiting for it, on real workers."""

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db.models import F, Sum

from operations.broker import get_broker
from operations.models import Attempt, Operation
from operations.verbs import Envelope
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until
from tests.operations.dependencies.outside import Outside

KIND = "inventory.sync"


@pytest.fixture
def outside(stack: Stack) -> Iterator[Outside]:
    """What the stack's processes call supplier."""
    with Outside() as outside:
        stack.env["SUPPLIER_URL"] = outside.url
        yield outside


def many(count: int) -> list[uuid.UUID]:
    """Operations that call outside, each for another user, all of them published."""
    model = get_user_model()
    users = model.objects.bulk_create(model(username=f"user-{n}") for n in range(count))
    ids = [accept(KIND, publish=False, user=user.pk) for user in users]
    get_broker().publish([Envelope(id, KIND) for id in ids])
    return ids


def plotted(per_second: list[int]) -> str:
    """Calls per second against time, from the first call on."""
    first = next((n for n, count in enumerate(per_second) if count), 0)
    return "\n".join(
        f"{n - first:3} s  {'#' * count} {count}"
        for n, count in enumerate(per_second)
        if n >= first
    )


def done(ids: list[uuid.UUID]) -> int:
    return Operation.objects.filter(id__in=ids, state="done").count()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("waiting", "down"),
    [
        (80, 3),
        pytest.param(600, 30, marks=pytest.mark.full),
        pytest.param(2_000, 120, marks=pytest.mark.full),
    ],
)
def test_while_a_dependency_is_down_it_is_left_in_peace_and_recovers_slowly(
    stack: Stack, outside: Outside, waiting: int, down: int
) -> None:
    """B6 B7 I1: few calls while down, whoever waits; a ramp at recovery; nothing is lost and
    next to nothing counted as an attempt; work of other kinds passes."""
    outside.mode = "fail"
    stack.env |= {"SEKALI_BREAKER_COOLDOWN": "1", "SEKALI_BREAKER_MINIMUM": "10"}
    stack.start(apis=0, workers=1, sandbox=False)
    ids = many(waiting)
    started = time.monotonic()
    others = [accept(label="x") for _ in range(20)]
    wait_until(lambda: Effect.objects.filter(operation_id__in=others).count() == 20, timeout=20)
    put_off = Operation.objects.filter(kind=KIND, deferrals__gt=0)
    wait_until(lambda: put_off.count() > 0.8 * waiting, timeout=10 + waiting / 15)
    since = time.monotonic()
    time.sleep(down)
    # Those that opened it (ten, and one in each child); then probes, ever more seldom.
    assert 10 <= len(outside.calls) <= 30
    print("down:", plotted(outside.per_second(started)), sep="\n")  # noqa: T201  (measured)
    assert sum(outside.per_second(since)) <= (3 if down < 10 else 10)
    assert Attempt.objects.filter(kind=KIND).count() <= len(outside.calls)
    assert not Operation.objects.filter(state="dead").exists()
    outside.mode = "ok"
    recovery = time.monotonic()
    try:
        wait_until(lambda: done(ids) == len(ids), timeout=90 + waiting / 5)
    finally:
        per_second = outside.per_second(recovery)
        print("recovery:", plotted(per_second), sep="\n")  # noqa: T201  (measured)
    first = next(n for n, count in enumerate(per_second) if count)
    assert sum(per_second[first : first + 3]) <= 12, per_second
    assert max(per_second) > (5 if waiting < 500 else 10), per_second


@pytest.mark.timeout(300)
@pytest.mark.parametrize("down", [5, pytest.param(45, marks=pytest.mark.full)])
def test_nobody_sleeps_on_when_a_disturbance_is_over(
    stack: Stack, outside: Outside, down: int
) -> None:
    """B6 B7: only the ramp holds back who has been waiting, and for however long; and until
    then it is the dispatcher that waits: nobody is put off again and again."""
    outside.mode = "fail"
    stack.env |= {"SEKALI_BREAKER_COOLDOWN": "1", "SEKALI_BREAKER_MINIMUM": "10"}
    stack.start(apis=0, workers=1, sandbox=False)
    ids = many(60)
    waiting = Operation.objects.filter(kind=KIND, state="pending")
    wait_until(lambda: waiting.filter(deferrals__gt=0).count() > 40, timeout=20)
    time.sleep(down)
    # As if it had been going on for ten minutes.
    waiting.update(deferred_since=F("deferred_since") - timedelta(minutes=10))
    outside.mode = "ok"
    recovery = time.monotonic()
    put_off = Operation.objects.filter(kind=KIND).aggregate(times=Sum("deferrals"))["times"]
    # Those whose call has failed wait as the schedule of their retries says.
    tried = Attempt.objects.filter(kind=KIND).values("operation_id")
    others = list(waiting.exclude(pk__in=tried).values_list("pk", flat=True))
    wait_until(lambda: done(others) == len(others), timeout=120)
    ended = time.monotonic() - recovery
    first = min(call for call in outside.calls if call > recovery) - recovery
    print(  # noqa: T201  (the measurement)
        f"down {down} s, put off {put_off} times; then the first call after {first:.1f} s, "
        f"{len(others)} are done {ended - first:.1f} s later"
    )
    assert ended - first <= 20
    assert put_off <= 3 * len(ids)


def test_a_dependency_that_hangs_does_not_hold_the_whole_pool(
    stack: Stack, outside: Outside
) -> None:
    """B7 I1: the bulkhead leaves one process in four to others, long before any time-out."""
    outside.mode = "hang"
    stack.env["SUPPLIER_TIMEOUT"] = "6"
    stack.start(apis=0, workers=0, sandbox=False)
    stack.add_worker(concurrency=4)
    many(20)
    wait_until(lambda: len(outside.calls) >= 3)
    time.sleep(0.5)
    started = time.monotonic()
    others = [accept(label="x") for _ in range(20)]
    wait_until(lambda: Effect.objects.filter(operation_id__in=others).count() == 20, timeout=5)
    assert time.monotonic() - started < 4
    assert len(outside.calls) == 3
