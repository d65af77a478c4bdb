"""What remote control (``celery control``, Flower) does to operations."""

import time
import uuid
from collections.abc import Iterator

import pytest
from celery import current_app

from operations.models import Attempt, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

KIND = "scripted.local"
pytestmark = pytest.mark.req("B2", "B7")


class Remote:
    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __call__(self, command: str, **arguments: object) -> None:
        """Send a command and wait until a worker says that it has carried it out."""
        replies = current_app.control.broadcast(
            command, arguments=arguments, reply=True, timeout=3, connection=self._connection
        )
        assert replies, f"nobody answered {command}"


@pytest.fixture
def control(stack: Stack) -> Iterator[Remote]:
    """Remote control of a worker and a dispatcher, which run."""
    stack.start(apis=0, sandbox=False)
    with current_app.connection_for_write(stack.broker_url) as connection:
        yield Remote(connection)


def state(id: uuid.UUID) -> str:
    return str(Operation.objects.get(pk=id).state)


def test_revoking_a_waiting_operation_cancels_it(stack: Stack, control: Remote) -> None:
    """B2: said so on the row; not orphaned, not sent again, and those behind it go on."""
    stack.dispatchers[0].stop()
    first = accept(publish=False, on="r")
    second = accept(publish=False, on="r")
    control("revoke", task_id=str(first))
    stack.dispatchers[0].cont()
    wait_until(lambda: state(second) == "done")
    assert state(first) == "cancelled"
    error = Operation.objects.get(pk=first).error
    assert error is not None
    assert error["category"] == "revoked"
    assert not Effect.objects.filter(operation_id=first).exists()


def test_revoking_what_was_begun_before_is_not_possible(stack: Stack, control: Remote) -> None:
    """B2: it may have had effects; it is told in the log and goes on to its end."""
    id = accept(script=["later:1", "later:1", "ok"])
    wait_until(lambda: Operation.objects.get(pk=id).epoch is not None)
    control("revoke", task_id=str(id))
    Operation.objects.filter(pk=id).update(payload={"script": ["ok"], "label": ""})
    wait_until(lambda: state(id) == "done")
    assert any("may have had effects" in worker.output() for worker in stack.workers)


def test_a_terminated_attempt_is_made_again_and_not_counted(stack: Stack, control: Remote) -> None:
    """B2: the history tells; losses and attempts stay as they were."""
    id = accept(script=["sleep:30"])
    wait_until(lambda: state(id) == "running")
    Operation.objects.filter(pk=id).update(payload={"script": ["ok"], "label": ""})
    control("revoke", task_id=str(id), terminate=True, signal="SIGKILL")
    wait_until(lambda: state(id) == "done", timeout=15)
    row = Operation.objects.get(pk=id)
    assert (row.attempts, row.losses) == (1, 0)
    outcomes = Attempt.objects.filter(operation_id=id).order_by("epoch")
    assert list(outcomes.values_list("outcome", flat=True)) == ["revoked", "done"]
    assert Effect.objects.filter(operation_id=id).count() == 1


def test_a_rate_limit_slows_a_kind_down_and_orphans_nothing(stack: Stack, control: Remote) -> None:
    """B7: what waits in the worker for its turn is done when the limit is lifted."""
    control("rate_limit", task_name=KIND, rate_limit="30/m")
    started = time.monotonic()
    ids = [accept() for _ in range(6)]
    other = accept("scripted.fifo", on="r")
    wait_until(lambda: state(ids[2]) == "done", timeout=10)
    assert time.monotonic() - started > 0.8
    control("rate_limit", task_name=KIND, rate_limit="0")
    for id in [*ids, other]:
        wait_until(lambda id=id: state(id) == "done", timeout=15)  # type: ignore[misc]
        assert Effect.objects.filter(operation_id=id).count() == 1


def test_a_worker_of_the_same_name_works_too(stack: Stack) -> None:
    """B2: two nodes of one name tell their claims apart by the process."""
    stack.start(apis=0, sandbox=False, workers=2)
    twin = stack.workers[1]
    command = stack.workers[0].command
    twin.terminate()
    twin.command = command
    twin.start()
    ids = [accept(script=["sleep:0.2"]) for _ in range(8)]
    wait_until(lambda: all(state(id) == "done" for id in ids), timeout=15)
    assert {"attempt done" in worker.output() for worker in stack.workers} == {True}
