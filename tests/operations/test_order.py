"""Operations on one resource: in order where that is asked for, and never in others' way."""

import uuid
from datetime import timedelta

from django.db.models.functions import Now

from operations.models import Operation
from tests.lab.accepting import accept
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until


def ended(ids: list[uuid.UUID], timeout: float = 30) -> None:
    wait_until(
        lambda: not Operation.objects.filter(id__in=ids, finished_at=None).exists(),
        timeout=timeout,
        message="not all operations have ended",
    )


def in_order_of_effects() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("label", flat=True))


def accept_three(kind: str, first_script: list[str]) -> list[uuid.UUID]:
    """The first one has to be tried again, the others would be quicker."""
    return [
        accept(kind, on="r", label="first", script=first_script),
        accept(kind, on="r", label="second"),
        accept(kind, on="r", label="third"),
    ]


def test_fifo_keeps_the_order_over_retries_and_lost_workers(stack: Stack) -> None:
    """B10 I1: across two workers, with the first one failing, and then its worker dying."""
    crash = Crash(stack)
    stack.start(apis=0, sandbox=False, workers=2)
    ended(accept_three("scripted.fifo", ["dependency", "ok"]))
    assert in_order_of_effects() == ["first", "second", "third"]
    crash.arm("handler.returned")
    ids = accept_three("scripted.fifo", ["ok"])
    crash.wait("handler.returned")
    ended(ids)
    assert in_order_of_effects()[3:] == ["first", "second", "third"]


def test_without_fifo_the_first_one_is_overtaken(stack: Stack) -> None:
    """B10: the default, so that one that waits does not hold up the others."""
    stack.start(apis=0, sandbox=False)
    first = accept(on="r", label="first", script=["dependency", "ok"])
    wait_until(Operation.objects.get(pk=first).history.exists)
    later = Now() + timedelta(seconds=3)
    Operation.objects.filter(pk=first, state="pending").update(not_before=later, due_at=later)
    others = [accept(on="r", label=label) for label in ("second", "third")]
    ended([first, *others])
    assert in_order_of_effects()[-1] == "first"


def test_in_fifo_a_dead_one_lets_those_behind_it_pass(stack: Stack) -> None:
    """B10: what is given up waits for people, and nobody waits for it."""
    stack.start(apis=0, sandbox=False)
    ids = accept_three("scripted.fifo", ["payload"])
    ended(ids)
    assert in_order_of_effects() == ["second", "third"]
    assert Operation.objects.get(pk=ids[0]).state == "dead"


def test_a_busy_resource_does_not_hold_up_others(stack: Stack) -> None:
    """B10 D5: its operations leave the queue instead of waiting in a worker."""
    stack.start(apis=0, sandbox=False)
    busy = [accept(on="busy", label="busy", script=["sleep:0.3"]) for _ in range(20)]
    other = accept(on="other", label="other")
    ended([other], timeout=5)
    assert Operation.objects.filter(id__in=busy, state="done").count() < 10
