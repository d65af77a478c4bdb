"""Messages of good operations, with parts that Celery knows and nobody here sends."""

import json
import uuid
from typing import Any

import pytest

from operations.broker.messages import template
from operations.models import Attempt, DeadLetter, Operation
from tests.lab.accepting import accept
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad
from tests.operations.brokers.conftest import Platform
from tests.operations.brokers.test_unreadable import members

pytestmark = pytest.mark.req("B8", "B12")

HEADERS: list[dict[str, Any]] = [
    {"eta": "9999-12-31T23:59:59"},
    {"eta": "0001-01-01T00:00:00+23:00"},
    {"expires": "2000-01-01T00:00:00"},
    {"timelimit": [0.0001, 0.0001]},
    {"timelimit": [-1, -1]},
    {"retries": 1000},
    {"sent_at": "0001-01-01T00:00:00+23:59"},
    {"get": 5},
    {"update": None},
    {"is_eager": True},
    {"called_directly": True},
    {"hostname": 7},
    {"errbacks": 5},
    {"chain": 4},
    {"group": "g", "group_index": "x"},
    {"stamps": {"a": 1}, "stamped_headers": ["a"]},
]
EMBEDDED: list[dict[str, Any]] = [
    {"callbacks": [{"task": "nowhere"}], "errbacks": None, "chain": None, "chord": None},
    {"callbacks": 5, "errbacks": 6, "chain": 7, "chord": 8},
    {"callbacks": None, "errbacks": [3], "chain": [3], "chord": {"x": 1}},
    {"is_eager": True, "called_directly": True, "id": 5, "delivery_info": None},
    {"task": 3},
]


def message(id: uuid.UUID, embed: object, headers: dict[str, Any]) -> Bad:
    made = template(KIND).headers_of(str(id), "") | headers
    return Bad("strange", "NoSuchOperation", json.dumps([[str(id)], {}, embed]).encode(), made)


def strange() -> list[tuple[object, dict[str, Any]]]:
    return [*(({}, headers) for headers in HEADERS), *((embed, {}) for embed in EMBEDDED)]


def test_what_else_a_message_says_changes_nothing(platform: Platform) -> None:
    """B8 B12: each leads to one attempt, at once, within the kind's own limits."""
    platform.stack.start(apis=0, sandbox=False, dispatchers=0)
    before = members(platform.stack.workers[0])
    ids = [accept(KIND, publish=False) for _ in strange()]
    for id, (embed, headers) in zip(ids, strange(), strict=True):
        platform.send(message(id, embed, headers))
    done = Operation.objects.filter(id__in=ids, state="done")
    wait_until(lambda: done.count() == len(ids), timeout=20)
    assert Attempt.objects.count() == len(ids)
    assert members(platform.stack.workers[0]) == before


def test_none_of_them_takes_a_place_in_the_worker(platform: Platform) -> None:
    """B12: a message that comes to nothing is answered for, whatever else it says; more of
    them than the worker has places do not fill it."""
    platform.stack.start(apis=0, sandbox=False, dispatchers=0)
    for embed, headers in strange():
        platform.send(message(uuid.uuid4(), embed, headers))
    for embed in EMBEDDED:
        # A task of the housekeeping that fails.
        made = template(KIND).headers_of(str(uuid.uuid4()), "") | {"task": "operations.prune"}
        platform.send(Bad("fails", "", json.dumps([[1, 2, 3], {}, embed]).encode(), made))
    platform.works(timeout=20)
    platform.stack.add_dispatcher()
    wait_until(lambda: DeadLetter.objects.count() == len(strange()), timeout=20)
