"""Two versions of the code side by side, as during a rolling deploy."""

import json
import uuid
from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from operations import verbs
from operations.broker.messages import template
from operations.models import DeadLetter, Operation
from tests.lab.accepting import accept, owner
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B8", "I1")

#: Known only where ``tests.lab.newer`` is installed; it has no queue of its own.
SHARED = "newer.shared"
NEWER = {"EXTRA_APPS": "tests.lab.scripted,tests.lab.newer"}


def accept_newer() -> uuid.UUID:
    """As an API of the newer version would, that died before it could publish."""
    id = uuid7()
    verbs.accept(
        id=id,
        owner=owner(),
        kind=SHARED,
        key=str(id),
        fingerprint="",
        fingerprint_version=1,
        payload={"script": ["ok"], "label": ""},
        payload_revision=1,
        resource="",
        precondition=None,
        retention=timedelta(hours=1),
        send=False,
    )
    return id


def row(id: uuid.UUID) -> Operation:
    return Operation.objects.get(pk=id)


def test_a_kind_only_the_newer_version_knows_waits_for_it(stack: Stack) -> None:
    """B8: an older worker on its queue puts it aside, unclaimed; neither dead nor lost."""
    stack.start(apis=0, sandbox=False)
    id = accept_newer()
    mine = accept()
    wait_until(lambda: row(mine).state == "done")
    assert row(id).sent_at is None, "the older dispatcher does not know where to send it"
    stack.add_dispatcher(env=NEWER)
    wait_until(lambda: row(id).deferrals >= 2, timeout=15)
    assert (row(id).state, row(id).epoch, row(id).attempts) == ("pending", None, 0)
    assert "No task of the name 'newer.shared' is known here" in stack.workers[0].output()
    stack.add_worker(env=NEWER)
    wait_until(lambda: row(id).state == "done", timeout=20)
    assert Effect.objects.filter(operation_id=id).count() == 1
    assert not DeadLetter.objects.exists()


def test_a_kind_nobody_learns_of_is_dead_in_the_end(stack: Stack) -> None:
    """B8: after the longest time that an operation may be deferred."""
    stack.env["SEKALI_DEFER_LIMIT"] = "1"
    stack.start(apis=0, sandbox=False, dispatchers=0)
    stack.add_dispatcher(env=NEWER)
    id = accept_newer()
    wait_until(lambda: row(id).state == "dead", timeout=20)
    letter = DeadLetter.objects.get()
    assert (letter.operation_id, letter.category, letter.error_type) == (
        id,
        "unroutable",
        "UnknownKind",
    )


def test_a_payload_of_a_newer_revision_waits_for_a_newer_worker(stack: Stack) -> None:
    """B8: deferred before it began, so not counted and still cancellable."""
    stack.start(apis=0, sandbox=False)
    id = accept(publish=False)
    Operation.objects.filter(pk=id).update(payload_revision=2)
    wait_until(lambda: row(id).deferrals >= 2, timeout=15)
    wait_until(lambda: row(id).state == "pending")
    assert (row(id).attempts, row(id).epoch) == (0, None)
    stack.add_worker(env={"SCRIPTED_REVISION": "2"})
    wait_until(lambda: row(id).state == "done", timeout=20)
    assert Effect.objects.filter(operation_id=id).count() == 1


def test_an_older_message_format_still_reaches_the_operation(stack: Stack) -> None:
    """B8: more in the headers than this version puts there does not matter."""
    stack.start(apis=0, sandbox=False, dispatchers=0)
    id = accept(publish=False)
    made = template("scripted.local")
    headers = made.headers_of(str(id), "") | {"later_invention": [1, 2]}
    item = {
        "body": made.body_of(str(id)).decode(),
        "headers": headers,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "properties": {"delivery_tag": "x", "delivery_info": {}, "priority": 0},
    }
    with stack.lab.broker.client() as client:
        client.lpush("scripted.local", json.dumps(item))
    wait_until(lambda: row(id).state == "done", timeout=10)
