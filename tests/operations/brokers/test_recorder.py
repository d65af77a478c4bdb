"""From the dead letter queue into the table: without loss, without doubles."""

import uuid
from collections.abc import Iterator

import pytest

from operations.broker.messages import template
from operations.models import DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.crash import Crash
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad, everywhere
from tests.operations.brokers.conftest import Platform

pytestmark = pytest.mark.req("C5", "B12", "I1")

LETTERS = 45


def garbage(count: int, *, alike: bool = False) -> Iterator[Bad]:
    for n in range(count):
        yield Bad(f"garbage {n}", "NoTask", b"x" if alike else b"%d" % n)


def letters() -> int:
    return DeadLetter.objects.filter(category="unroutable").count()


def test_it_may_be_down_for_a_while(platform: Platform) -> None:
    """C5: meanwhile the letters wait in the broker's queue, whole."""
    platform.stack.start(apis=0, sandbox=False, dispatchers=0)
    for bad in garbage(LETTERS):
        platform.send(bad)
    wait_until(lambda: platform.ready("dead_letter") == LETTERS, timeout=20)
    assert letters() == 0
    platform.stack.add_dispatcher()
    # RabbitMQ does not count what is being recorded as ready any more.
    wait_until(lambda: letters() == LETTERS, timeout=20)
    wait_until(lambda: platform.ready("dead_letter") == 0, timeout=20)


@pytest.mark.parametrize("point", ["letters.read", "letters.stored"])
@pytest.mark.parametrize(
    "platform", ["redis", pytest.param("rabbitmq", marks=pytest.mark.full)], indirect=True
)
def test_it_may_die_half_way(platform: Platform, point: str) -> None:
    """C5 I1: before anything is stored, or before the messages are off the queue."""
    crash = Crash(platform.stack)
    platform.stack.start(apis=0, sandbox=False, dispatchers=0)
    for bad in garbage(LETTERS):
        platform.send(bad)
    wait_until(lambda: platform.ready("dead_letter") == LETTERS, timeout=20)
    dispatcher = platform.stack.add_dispatcher(wait=False)
    for _ in range(2):
        crash.arm(point)
        crash.wait(point, timeout=20)
        wait_until(lambda: not dispatcher.is_running)
        dispatcher.discard()
        dispatcher.start()
    wait_until(lambda: platform.ready("dead_letter") == 0, timeout=20)
    wait_until(lambda: letters() == LETTERS, timeout=10)


def test_several_at_once_record_each_message_once(platform: Platform) -> None:
    """C5: also messages that are alike to the last byte."""
    platform.stack.start(apis=0, sandbox=False, dispatchers=0)
    for bad in garbage(LETTERS, alike=True):
        platform.send(bad)
    wait_until(lambda: platform.ready("dead_letter") == LETTERS, timeout=20)
    for _ in range(3):
        platform.stack.add_dispatcher(wait=False)
    wait_until(lambda: platform.ready("dead_letter") == 0, timeout=20)
    wait_until(lambda: letters() == LETTERS, timeout=10)


def test_a_message_of_an_open_operation_is_sent_again_instead(platform: Platform) -> None:
    """C5: the row is the truth; what came to nothing was only its message."""
    platform.stack.start(apis=0, sandbox=False, workers=0, dispatchers=1)
    id = accept(KIND)
    made = template(KIND)
    platform.send(
        Bad("good", "", made.body_of(str(id)), made.headers_of(str(id), "")), "dead_letter"
    )
    wait_until(lambda: Operation.objects.get(pk=id).deferrals == 1, timeout=15)
    wait_until(lambda: platform.ready("dead_letter") == 0)
    platform.stack.add_worker()
    wait_until(lambda: Operation.objects.get(pk=id).state == "done", timeout=15)
    assert letters() == 0


def test_what_nobody_can_store_as_text_is_stored_all_the_same(platform: Platform) -> None:
    """C5: NUL and half surrogates, in headers and names."""
    platform.stack.start(apis=0, sandbox=False, workers=0)
    odd = {"task": "a\x00b", "id": str(uuid.uuid4()), "note": ["\x00", {"\x00": 1.5}]}
    platform.send(Bad("odd", "UnknownTask", everywhere()[0].body, odd), "dead_letter")
    wait_until(lambda: letters() == 1, timeout=15)
    assert DeadLetter.objects.get().kind == "a\\x00b"
