"""A broker that forgot everything, with a backlog."""

import time

import pytest

from operations.broker import BrokerUnavailable
from operations.models import Operation
from tests.lab.accepting import backlog
from tests.lab.rabbitmq import RabbitServer
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND
from tests.operations.brokers.conftest import Platform, empty

BACKLOG = 50_000
#: Seconds from the wipe to the last message.
IN_TIME = 15.0


@pytest.mark.full
@pytest.mark.req("A7", "B12", "I1")
def test_a_wiped_broker_is_filled_again_in_time(platform: Platform) -> None:
    """A7 B12 I1: and before that a backlog costs hardly more than one message each."""
    backlog(BACKLOG, KIND)
    platform.stack.start(apis=0, sandbox=False, workers=0)
    wait_until(lambda: ready(platform) >= BACKLOG, timeout=60)
    # Long enough for whatever would be sent again to be sent.
    time.sleep(5)
    assert ready(platform) <= 1.1 * BACKLOG
    if isinstance(platform.server, RabbitServer):
        platform.server.wipe()
    else:
        platform.server.flush()
    started = time.monotonic()
    wait_until(lambda: ready(platform) >= BACKLOG, timeout=60, every=0.2)
    took = time.monotonic() - started
    assert Operation.objects.filter(sent_at=None).count() == 0
    if isinstance(platform.server, RabbitServer):
        empty(platform.server)
    assert took < IN_TIME


def ready(platform: Platform) -> int:
    try:
        return platform.ready(KIND)
    except BrokerUnavailable:
        return 0
