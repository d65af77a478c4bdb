"""Redis only: what stands under our names and was not put there by us."""

from collections.abc import Iterator

import pytest
import redis
from django.conf import LazySettings

from operations.broker import BrokerUnavailable, get_broker
from operations.broker.redis import MARK_KEY
from operations.broker_watch import BrokerWatch
from operations.dispatcher import Dispatcher
from operations.evidence import Evidence
from operations.models import DeadLetter
from operations.recorder import Recorder
from tests.lab.services import ValkeyServer
from tests.operations.brokers.bad_messages import KIND

pytestmark = [pytest.mark.req("B12", "C5", "I1"), pytest.mark.django_db(transaction=True)]


def _message(header: bytes) -> bytes:
    rest = b'"content-type":"application/json","properties":{"body_encoding":"base64"}}'
    return b'{"body":"e30=","headers":{"task":"x","id":"y","z":' + header + b"}," + rest


@pytest.fixture
def client(broker: ValkeyServer, settings: LazySettings) -> Iterator[redis.Redis]:
    settings.BROKER_URL = broker.url
    with broker.client() as client:
        yield client


@pytest.mark.parametrize(
    "item",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"\n{}",
        b'{"id": "%s", "queue": "q", "why": ""}\n{}' % (b"x" * 1000),
        b'{"id": "\\u0000", "queue": "q", "why": ""}\n{}',
        b'{"id": "\\ud800", "queue": "\\ud800", "why": "\\u0000"}\n{}',
        _message(b"[" * 400 + b"]" * 400),
        _message(b"[" * 900 + b"]" * 900),
        _message(b"9" * 5000),
    ],
    ids=["deep", "deep head", "long id", "NUL", "surrogate", "deep headers", "deeper", "digits"],
)  # fmt: skip
def test_any_letter_can_be_recorded(client: redis.Redis, item: bytes) -> None:
    """C5: or it would stand in the way of all that come after it."""
    client.lpush("dead_letter", item, b"the next one")
    assert Recorder(get_broker()).look() == 2
    assert client.llen("dead_letter") == 0
    assert DeadLetter.objects.count() == 2


@pytest.mark.parametrize("value", ["", "garbage", "1.5", "nan", "inf", "9" * 30, ["a", "list"]])
def test_what_is_no_mark_is_a_lost_mark(client: redis.Redis, value: str | list[str]) -> None:
    """I1: it looks like a wipe, once; and the next mark replaces it."""
    watch = BrokerWatch(get_broker())
    assert watch.look() is False
    client.delete(MARK_KEY)
    if isinstance(value, list):
        client.rpush(MARK_KEY, *value)
    else:
        client.set(MARK_KEY, value)
    for wiped in (True, False):
        watch._next_look = 0
        assert watch.look() is wiped


def test_a_queue_that_cannot_be_read_hides_no_other(client: redis.Redis) -> None:
    """I1: evidence about the others is found all the same."""
    evidence = Evidence(get_broker())
    first = next(iter(evidence._queues))
    assert KIND in evidence._queues
    assert first != KIND
    client.hset(first, "not", "a list")
    for expected in (False, True):  # an empty queue is evidence at the second reading
        evidence._next_reading = 0
        found: list[str] = []
        with pytest.raises(BrokerUnavailable):
            for kinds, _sent_before in evidence.gather():
                found += kinds
        assert (KIND in found) is expected


def test_a_full_broker_is_rid_of_its_dead_letters(client: redis.Redis) -> None:
    """C5 I1: it takes no mark, so nothing is sent; but what fills it is taken away."""
    for n in range(10):
        client.lpush("dead_letter", b"%d" % n * 50_000)
    client.config_set("maxmemory", 1)
    rounds = iter(range(20))
    try:
        with pytest.raises(BrokerUnavailable):
            get_broker().write_mark(1)
        Dispatcher(get_broker()).run(
            lambda _: not client.exists("dead_letter") or next(rounds, None) is None
        )
    finally:
        client.config_set("maxmemory", 0)
    assert client.llen("dead_letter") == 0
    assert DeadLetter.objects.count() == 10
