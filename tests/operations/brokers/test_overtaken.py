"""A message that was sent again while its first copy still stood in the queue."""

import time
from datetime import datetime

import pytest
from django.conf import settings

from operations import verbs
from operations.broker import get_broker
from operations.broker.messages import as_header, sent_at_of
from operations.claimed_row import ClaimedRow
from operations.dispatcher import Dispatcher
from operations.models import Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND


@pytest.mark.req("B1", "I2")
@pytest.mark.parametrize("tells", [True, False], ids=["ours", "control"])
def test_its_claim_is_no_evidence_against_the_others(
    database: str, broker: ValkeyServer, tells: bool
) -> None:
    """B1: a worker that left puts its messages back at the head, its rows are sent again at
    the tail; the backlog between them is not lost. I2: without the time in the message, all
    of it would be sent twice."""
    ids = [accept(KIND) for _ in range(50)]
    first = Operation.objects.get(pk=ids[0]).sent_at
    assert first is not None
    time.sleep(1.5 * settings.SEKALI_EVIDENCE_AGE)
    Operation.objects.filter(pk=ids[0]).update(sent_at=None)
    (again,) = verbs.take_due([KIND], 10)
    assert again.id == ids[0]
    claimed = claim(ids[0], first if tells else None)
    assert (claimed.queued_at == first) is tells
    dispatcher = Dispatcher(get_broker())
    end = time.monotonic() + 3 * settings.SEKALI_EVIDENCE_INTERVAL
    sent = 0
    while time.monotonic() < end:
        sent += dispatcher.round()
    assert sent == (0 if tells else len(ids) - 1)


def claim(id: object, sent_at: datetime | None) -> ClaimedRow:
    row = verbs.claim(id, KIND, claimed_by="n/1.1#a", fifo=False, sent_at=sent_at)  # type: ignore[arg-type]
    assert row is not None
    return row


@pytest.mark.req("B1")
def test_a_message_says_when_it_was_sent(stack: Stack) -> None:
    """B1: from the accepting statement and the dispatcher's to the claim."""
    stack.start(apis=0, sandbox=False)
    id = accept(KIND, publish=False)
    wait_until(lambda: Operation.objects.get(pk=id).state == "done")
    row = Operation.objects.get(pk=id)
    assert row.sent_at is not None
    assert row.history.get().queued_at == row.sent_at
    assert sent_at_of(as_header(row.sent_at)) == row.sent_at
    assert sent_at_of(as_header(None)) is None
