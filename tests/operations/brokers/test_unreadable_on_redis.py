"""Messages no worker can handle, on Redis and Valkey."""

import json
from typing import Any

import pytest

from operations.models import DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Process, Stack
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad, everywhere, in_lists

pytestmark = pytest.mark.req("B8", "C5")


def members(worker: Process) -> list[int]:
    return [worker.pid, *sorted(child.pid for child in worker.children())]


def works(timeout: float = 10) -> None:
    """Operations are still done."""
    id = accept(KIND)
    wait_until(lambda: Operation.objects.get(pk=id).state == "done", timeout=timeout)


def expect_letters(count: int) -> list[DeadLetter]:
    wait_until(
        lambda: DeadLetter.objects.count() >= count,
        timeout=20,
        message=f"{DeadLetter.objects.count()} of {count} letters",
    )
    return list(DeadLetter.objects.order_by("id"))


def holds(letter: DeadLetter, bad: Bad) -> bool:
    """The letter has the message whole: bytes and headers."""
    body = bytes(letter.body or b"")
    if bad.raw is not None:
        return body == bad.raw
    headers: Any = letter.headers
    return body == bad.body != b"" and headers["headers"] == json.loads(json.dumps(bad.headers))


def test_none_is_lost_and_none_stops_a_worker(stack: Stack) -> None:
    """B8 C5: each arrives whole in dead_letter and in the table; the same processes go on."""
    stack.start(apis=0, sandbox=False)
    worker = stack.workers[0]
    before = members(worker)
    bad = everywhere() + in_lists()
    with stack.lab.broker.client() as client:
        for message in bad:
            client.lpush(KIND, message.as_item)
        letters = expect_letters(len(bad))
        assert len(letters) == len(bad)
        works()
        assert client.llen("dead_letter") == 0
        assert client.hlen("sekali:unacked") == 0
    assert members(worker) == before
    assert {message.name: kinds_of(message, letters) for message in bad} == {
        message.name: [message.error] for message in bad
    }
    assert {letter.queue for letter in letters} == {KIND}
    assert {(letter.category, letter.state) for letter in letters} == {("unroutable", "open")}


def kinds_of(message: Bad, letters: list[DeadLetter]) -> list[str]:
    return [letter.error_type for letter in letters if holds(letter, message)]
