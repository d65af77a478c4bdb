"""Every ending of an attempt, on a real worker."""

import pytest

from operations.models import Attempt, DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

ENDINGS = [
    # script, state, outcomes of the attempts, effects
    (["ok"], "done", ["done"], 1),
    (["refuse"], "failed", ["refused"], 0),
    (["dependency", "ok"], "done", ["retry", "done"], 1),
    (["listed", "ok"], "done", ["retry", "done"], 1),
    (["dependency"], "dead", ["retry"] * 4 + ["dead"], 0),
    (["bug"], "dead", ["retry", "retry", "dead"], 0),
    (["bug", "ok"], "done", ["retry", "done"], 1),
    (["payload"], "dead", ["dead"], 0),
    (["kill"], "dead", ["lost", "lost", "lost"], 0),
    (["kill", "ok"], "done", ["lost", "done"], 1),
    (["exit", "ok"], "done", ["lost", "done"], 1),
    (["system-exit", "ok"], "done", ["retry", "done"], 1),
    (["close", "ok"], "done", None, 1),
    (["later:60"], "pending", [], 0),
]


@pytest.mark.req("A4", "B5", "B6", "B8", "C1", "C2")
def test_every_script_ends_as_the_table_says(stack: Stack) -> None:
    """B5 B6 B8 C1 C2: one operation for each way in which an attempt can end."""
    stack.start(apis=0, sandbox=False, workers=1, dispatchers=1)
    ids = {index: accept(script=script) for index, (script, *_) in enumerate(ENDINGS)}
    open_ids = [ids[i] for i, (_, state, *_) in enumerate(ENDINGS) if state != "pending"]
    wait_until(
        lambda: not Operation.objects.filter(id__in=open_ids, finished_at=None).exists(),
        timeout=30,
    )
    wait_until(lambda: Operation.objects.filter(state="pending", deferrals=1).exists())
    found = []
    for index, (script, _state, outcomes, _effects) in enumerate(ENDINGS):
        operation = Operation.objects.get(pk=ids[index])
        history = list(
            Attempt.objects.filter(operation=operation)
            .order_by("epoch")
            .values_list("outcome", flat=True)
        )
        effects = Effect.objects.filter(operation_id=operation.id).count()
        found.append((script, operation.state, outcomes if outcomes is None else history, effects))
    assert found == ENDINGS
    letters = DeadLetter.objects.order_by("category").values_list("category", "state")
    assert sorted(letters) == sorted(
        [("dependency", "open"), ("bug", "open"), ("data", "open"), ("worker_lost", "open")]
    )
