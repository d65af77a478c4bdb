"""Messages no worker can handle."""

import json
from typing import Any

import pytest

from operations.models import DeadLetter
from tests.lab.processes import Process
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad, everywhere, in_lists
from tests.operations.brokers.conftest import Platform

pytestmark = pytest.mark.req("B8", "B12", "C5")


def members(worker: Process) -> list[int]:
    return [worker.pid, *sorted(child.pid for child in worker.children())]


def expect_letters(count: int) -> list[DeadLetter]:
    wait_until(
        lambda: DeadLetter.objects.count() >= count,
        timeout=20,
        message=f"not all of {count} letters are recorded",
    )
    return list(DeadLetter.objects.order_by("id"))


def holds(letter: DeadLetter, bad: Bad) -> bool:
    """The letter has the message whole: bytes and headers."""
    body = bytes(letter.body or b"")
    if bad.raw is not None:
        return body == bad.raw
    headers: Any = letter.headers
    # NUL is all that PostgreSQL cannot hold.
    sent = json.loads(json.dumps(bad.headers).replace(r"\u0000", r"\\x00"))
    return body == bad.body != b"" and headers["headers"] == sent


def names_of(bad: Bad, letters: list[DeadLetter]) -> list[str]:
    return [letter.error_type for letter in letters if holds(letter, bad)]


def test_none_is_lost_and_none_stops_a_worker(platform: Platform) -> None:
    """B8 B12 C5: each arrives whole in dead_letter and in the table; the same processes go on."""
    platform.stack.start(apis=0, sandbox=False)
    worker = platform.stack.workers[0]
    platform.works()
    before = members(worker)
    bad = everywhere() + (in_lists() if platform.is_redis else [])
    for message in bad:
        platform.send(message)
    letters = expect_letters(len(bad))
    platform.works()
    assert DeadLetter.objects.count() == len(bad)
    assert members(worker) == before
    assert platform.ready("dead_letter") == 0
    assert {message.name: names_of(message, letters) for message in bad} == {
        message.name: [message.error] for message in bad
    }
    assert {letter.queue for letter in letters} == {KIND}
    assert {(letter.category, letter.state) for letter in letters} == {("unroutable", "open")}
