"""Purchases on real workers, which die, or stop and go on, at every point."""

import os
import signal
import time
import uuid
from collections.abc import Iterator

import pytest
from django.utils import timezone

from operations.broker import get_broker
from operations.models import Attempt, Operation
from operations.verbs import Envelope
from tests.lab.crash import Crash
from tests.lab.processes import Process, Stack
from tests.lab.waiting import wait_until
from tests.purchases.market import KIND, PRICE, Market, StackSandbox, settle_down

#: Nobody here is ended for taking long: a worker that was stopped is to go on.
PATIENT = {
    "SEKALI_SOFT_TIME_LIMIT": "50",
    "SEKALI_TIME_LIMIT": "60",
    "SEKALI_VISIBILITY_TIMEOUT": "100",
}
#: Given up after one retry, so that a purchase is soon dead.
HASTY = {"SEKALI_RETRY_BACKOFF": "0.1"}
POINTS = (
    "claim.made",
    "lease.acquired",
    "purchase.reserved",
    "purchase.charged",
    "handler.returned",
    "settle.committed",
    "attempt.over",
)


@pytest.fixture
def sandbox(stack: Stack) -> Iterator[StackSandbox]:
    """The controls of the stack's sandbox."""
    controls = StackSandbox(stack)
    yield controls
    controls.http.close()


def outcomes(id: uuid.UUID) -> list[str]:
    history = Attempt.objects.filter(operation_id=id).order_by("epoch")
    return list(history.values_list("outcome", flat=True))


@pytest.mark.req("B1", "B2", "G2", "I1")
def test_a_worker_child_dies_at_every_point_of_a_purchase(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """B1 B2 G2 I1: each time one charge, one grant, one operation that is done."""
    crash = Crash(stack)
    # What was rescued at once may come by where the next one is to die.
    stack.env["SEKALI_MAX_LOSSES"] = "10"
    stack.start(apis=0, workers=0)
    # Celery needs some seconds to replace a child; enough of them need not wait for it.
    stack.add_worker(concurrency=len(POINTS) + 1)
    market = Market.opened(sandbox)
    ids = []
    for point in POINTS:
        crash.arm(point)
        ids.append(market.order(publish=True))
        crash.wait(point)

    assert settle_down(*ids) == ["done"] * len(POINTS)
    assert sorted(market.ledger()) == sorted((f"{id}:1", PRICE, "succeeded") for id in ids)
    assert market.agrees()


@pytest.mark.req("B1", "B2", "G2", "I1")
def test_a_whole_worker_dies_in_the_middle_of_a_purchase(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """B1 B2 G2 I1: as when a host dies; the claim's TTL brings the purchase back."""
    crash = Crash(stack)
    stack.start(apis=0)
    market = Market.opened(sandbox)
    for point in ("purchase.reserved", "purchase.charged"):
        crash.arm(point, "kill-parent")
        id = market.order(publish=True)
        crash.wait(point)
        revive(stack.workers[0])
        assert settle_down(id) == ["done"]
        assert outcomes(id) == ["lost", "done"]
    assert len(market.ledger()) == 2
    assert market.agrees()


@pytest.mark.req("D2", "G2", "I1")
def test_a_worker_that_was_stopped_past_its_claim_changes_nothing_when_it_goes_on(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """D2 G2 I1: before the charge, and after it."""
    stack.env.update(PATIENT)
    crash = Crash(stack)
    stack.start(apis=0, workers=0)
    worker = stack.add_worker(concurrency=4)
    market = Market.opened(sandbox)
    stopped, ids = [], []
    for point in ("purchase.reserved", "purchase.charged"):
        crash.arm(point, "stop")
        ids.append(market.order(publish=True))
        stopped.append(crash.wait(point))

    assert settle_down(*ids) == ["done", "done"]
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)

    wait_until(lambda: worker.output().count("attempt lost") == 2, message="they do not go on")
    assert [outcomes(id) for id in ids] == [["lost", "done"]] * 2
    assert sorted(market.ledger()) == sorted((f"{id}:1", PRICE, "succeeded") for id in ids)
    assert market.agrees()


@pytest.mark.req("D2", "G2", "I1")
def test_a_worker_that_was_stopped_cannot_charge_what_was_given_up(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """D2 G2 I1: the key in its hand was burnt meanwhile; and so when it is forgotten."""
    stack.env.update(PATIENT | HASTY)
    crash = Crash(stack)
    stack.start(apis=0, workers=0)
    worker = stack.add_worker(concurrency=3)
    market = Market.opened(sandbox)
    crash.arm("purchase.reserved", "stop")
    id = market.order(publish=True)
    stopped = crash.wait("purchase.reserved")
    # No later attempt gets as far as to send the key.
    sandbox.faults(gateway={"mode": "error", "reads": True})
    assert settle_down(id) == ["dead"]
    sandbox.faults()

    compensation = market.discard(id)
    assert settle_down(compensation) == ["done"]
    os.kill(stopped, signal.SIGCONT)

    wait_until(lambda: "attempt lost" in worker.output(), message="it does not go on")
    assert Operation.objects.get(pk=id).state == "cancelled"
    assert market.ledger() == []
    assert market.stock() == (10, 0)
    assert market.agrees()


@pytest.mark.req("D2", "G2", "I1")
def test_a_worker_that_was_stopped_past_its_time_limit_sends_nothing(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """D2 G2 I1: the gateway has forgotten the key, and would charge anew."""
    stack.env.update(PATIENT | {"SEKALI_SOFT_TIME_LIMIT": "3.5"})
    crash = Crash(stack)
    stack.start(apis=0, workers=2)
    market = Market.opened(sandbox)
    crash.arm("purchase.reserved", "stop")
    id = market.order(publish=True)
    stopped = crash.wait("purchase.reserved")
    worker = next(it for it in stack.workers if stopped in {child.pid for child in it.children()})
    # Its main process as well, or that would end the attempt when the time is over.
    worker.stop()
    assert settle_down(id) == ["done"]
    wait_until(lambda: seconds_since_begin(id) > 4, message="time stands still")
    sandbox.http.post("/gateway/forget", json={}).raise_for_status()

    os.kill(stopped, signal.SIGCONT)

    wait_until(lambda: "attempt lost" in worker.output(), message="it does not go on")
    assert market.ledger() == [(f"{id}:1", PRICE, "succeeded")]
    assert market.agrees()


@pytest.mark.req("B1", "F1", "F2", "I1")
def test_sixty_buyers_and_five_messages_for_each(stack: Stack, sandbox: StackSandbox) -> None:
    """B1 F1 F2 I1: ten pieces, ten charges, ten grants."""
    stack.start(apis=0, workers=2)
    market = Market.opened(sandbox)
    ids = [market.order() for _ in range(60)]

    get_broker().publish([Envelope(id, KIND) for id in ids for _ in range(5)])

    states = settle_down(*ids, timeout=40)
    assert (states.count("done"), states.count("failed")) == (10, 50)
    assert len(market.ledger()) == 10
    assert market.agrees()
    get_broker().publish([Envelope(id, KIND) for id in ids])
    wait_until(lambda: broker_is_empty(stack), message="messages are left")
    assert market.agrees()


@pytest.mark.req("B7", "G2", "I1")
@pytest.mark.parametrize(
    ("concurrency", "places"), [(2, 2), pytest.param(4, 3, marks=pytest.mark.full)]
)
def test_a_slow_gateway_slows_purchases_down_and_no_more(
    stack: Stack, sandbox: StackSandbox, concurrency: int, places: int
) -> None:
    """B7 G2 I1: the calls decide how long it takes, not waits between them; and the
    first attempt at each is the only one that calls."""
    stack.start(apis=0, workers=0)
    stack.add_worker(concurrency=concurrency)
    market = Market.opened(sandbox, pieces=30)
    sandbox.faults(gateway={"mode": "slow", "delay_s": 0.5, "reads": True})
    ids = [market.order() for _ in range(8 * places)]

    began = time.monotonic()
    get_broker().publish([Envelope(id, KIND) for id in ids])

    states = settle_down(*ids, timeout=2.5 * 8 * 0.5 + 2)
    print(f"{time.monotonic() - began:.1f} s of 4 s")  # noqa: T201  (the measurement)
    assert states == ["done"] * len(ids)
    assert market.agrees()


@pytest.mark.req("G2", "I1")
def test_a_compensation_survives_the_death_of_its_worker(
    stack: Stack, sandbox: StackSandbox
) -> None:
    """G2 I1: refunded once."""
    stack.env.update(HASTY)
    crash = Crash(stack)
    stack.start(apis=0, workers=0)
    stack.add_worker(concurrency=3)
    market = Market.opened(sandbox)
    sandbox.faults(gateway={"mode": "drop_reply", "reads": True})
    id = market.order(publish=True)
    assert settle_down(id) == ["dead"]
    sandbox.faults()
    crash.arm("purchase.compensated")

    compensation = market.discard(id)
    crash.wait("purchase.compensated")

    assert settle_down(compensation) == ["done"]
    assert outcomes(compensation) == ["lost", "done"]
    assert market.ledger() == [(f"{id}:1", PRICE, "refunded")]
    assert market.agrees()


def revive(process: Process) -> None:
    """What a supervisor would do."""
    wait_until(lambda: not process.is_running, message=f"{process.name} was to die")
    process.discard()
    process.start()


def seconds_since_begin(id: uuid.UUID) -> float:
    """Since the first attempt at an operation began."""
    first = Attempt.objects.filter(operation_id=id).earliest("epoch")
    return (timezone.now() - first.started_at).total_seconds()


def broker_is_empty(stack: Stack) -> bool:
    with stack.lab.broker.client() as client:
        return not client.llen(KIND) and not client.hlen("unacked")
