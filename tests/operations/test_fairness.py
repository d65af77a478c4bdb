"""One owner's ten thousand operations are not everybody's."""

import time

import pytest
from pytest_django import Settings

from operations.broker import get_broker
from operations.dispatcher import Dispatcher
from operations.models import Operation
from tests.lab.accepting import accept, owner
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until

KIND = "scripted.local"


@pytest.mark.django_db(transaction=True)
def test_one_owner_has_so_many_messages_in_the_broker_and_no_more(
    broker: ValkeyServer, settings: Settings
) -> None:
    """A1 B7: the rest waits in the table, and whoever comes next is sent at once."""
    settings.SEKALI_OWNER_WINDOW, settings.SEKALI_DISPATCH_BATCH = 50, 20
    heavy, light = owner("heavy"), owner("light")
    for _ in range(200):
        accept(KIND, publish=False, user=heavy)
    dispatcher = Dispatcher(get_broker())
    for _ in range(20):
        dispatcher.round()
    with broker.client() as client:
        assert 50 <= client.llen(KIND) < 50 + 20
    single = accept(KIND, publish=False, user=light)
    dispatcher.round()
    assert Operation.objects.get(pk=single).sent_at is not None
    other_queue = accept("scripted.split", publish=False, user=heavy)
    dispatcher.round()
    assert Operation.objects.get(pk=other_queue).sent_at is not None
    Operation.objects.filter(sent_at__isnull=False).update(
        state="cancelled", finished_at="2026-01-01T00:00:00Z", due_at=None
    )
    assert dispatcher.round() == 20


@pytest.mark.django_db(transaction=True)
def test_who_has_a_backlog_leaves_publishing_to_the_dispatcher(
    broker: ValkeyServer, settings: Settings
) -> None:
    """A1: the first few are published by the API, as those of everybody else are."""
    settings.SEKALI_OWNER_WINDOW = 50
    heavy, light = owner("heavy"), owner("light")
    ids = [accept(KIND, publish=True, user=heavy) for _ in range(20)]
    sent = [Operation.objects.get(pk=id).sent_at is not None for id in ids]
    assert sent == [True] * 6 + [False] * 14
    elsewhere = accept("scripted.split", user=heavy)
    assert Operation.objects.get(pk=elsewhere).sent_at is not None
    assert Operation.objects.get(pk=accept(KIND, user=light)).sent_at is not None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("many", [400, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_single_operation_does_not_wait_for_all_of_another_owner(stack: Stack, many: int) -> None:
    """A1 B7: measured; it waits for a window's worth at most."""
    stack.env["SEKALI_OWNER_WINDOW"] = str(many // 10)
    stack.start(apis=0, workers=1, sandbox=False)
    heavy, light = owner("heavy"), owner("light")
    stack.workers[0].stop()
    for _ in range(many):
        accept(KIND, publish=False, user=heavy, label="heavy")
    wait_until(lambda: Operation.objects.filter(sent_at__isnull=False).count() >= many // 10)
    single = accept(KIND, user=light, label="light")
    stack.workers[0].cont()
    started = time.monotonic()
    wait_until(lambda: Effect.objects.filter(operation_id=single).exists(), timeout=180)
    waited, before = time.monotonic() - started, Effect.objects.filter(label="heavy").count()
    print(f"waited {waited:.2f} s behind {before} of {many}")  # noqa: T201  (the measurement)
    # The window, and what the dispatcher may send beyond it in a round (2,000).
    assert before < min(many * 0.75, many // 10 + 2_100)
