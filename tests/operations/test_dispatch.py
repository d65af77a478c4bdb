"""Sending what is due, again what was lost, and nothing besides."""

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import redis
from django.conf import LazySettings, settings
from django.db import connection

from operations import registry, verbs
from operations.broker import get_broker
from operations.broker.redis import MARK_KEY
from operations.dispatcher import Dispatcher
from operations.endings import Done
from operations.models import BrokerMark, Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.scripted.models import Effect
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until

QUEUE = "scripted.local"

database_only = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client(broker: ValkeyServer) -> Iterator[redis.Redis]:
    with broker.client() as client:
        yield client


def messages(client: redis.Redis, queue: str = QUEUE) -> int:
    return int(client.llen(queue))


def rounds_for(dispatcher: Dispatcher, seconds: float) -> int:
    """Rounds for some time; how many messages they sent."""
    sent, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        sent += dispatcher.round()
        time.sleep(0.02)
    return sent


@database_only
def test_what_is_owed_is_sent_once_by_any_number_of_dispatchers(client: redis.Redis) -> None:
    """A7 B1: SKIP LOCKED shares the work out; nobody sends what another has taken."""
    for _ in range(300):
        accept(publish=False)
    together = threading.Barrier(4)
    errors: list[Exception] = []

    def run() -> None:
        try:
            together.wait(5)
            rounds_for(Dispatcher(get_broker()), 1)
        except Exception as error:  # noqa: BLE001  (handed to the test)
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []
    assert messages(client) == 300


@database_only
def test_a_backlog_is_not_sent_again(client: redis.Redis) -> None:
    """B1: an hour-long queue is no evidence of loss; the broker holds one message each."""
    for _ in range(200):
        accept(publish=True)
    assert rounds_for(Dispatcher(get_broker()), 3) == 0
    assert messages(client) == 200


@database_only
def test_only_the_head_of_a_resource_is_sent(client: redis.Redis) -> None:
    """B10: the others wait in Postgres, not in the broker."""
    ids = [accept(publish=False, on="r") for _ in range(50)]
    dispatcher = Dispatcher(get_broker())
    assert rounds_for(dispatcher, 0.5) == 1
    row = verbs.claim(ids[0], QUEUE, claimed_by="n/1.1#a", fifo=False)
    assert row is not None
    assert rounds_for(dispatcher, 0.5) == 0
    woken = verbs.settle(row, Done(None), retention=registry.get(QUEUE).key_retention)
    assert [envelope.id for envelope in woken] == [ids[1]]


@database_only
def test_a_message_that_a_later_one_overtook_is_sent_again(client: redis.Redis) -> None:
    """A7 I1: evidence from the claims of the same queue, though the queue is never empty."""
    lost = accept(publish=True)
    assert client.rpop(QUEUE) is not None
    accept(publish=True)  # keeps the queue from being empty
    dispatcher = Dispatcher(get_broker())
    assert rounds_for(dispatcher, 1.2 * settings.SEKALI_EVIDENCE_AGE) == 0
    later = accept(publish=True)
    claimed = verbs.claim(later, QUEUE, claimed_by="n/1.1#a", fifo=False)
    assert claimed is not None
    sent = Operation.objects.get(pk=lost).sent_at
    assert sent is not None
    wait_until(lambda: dispatcher.round() == 2, timeout=5)
    again = Operation.objects.get(pk=lost).sent_at
    assert again is not None
    assert again > sent


@database_only
def test_the_same_message_is_sent_again_once_a_minute_at_most(client: redis.Redis) -> None:
    """B1: even if every message vanishes."""
    accept(publish=True)
    client.flushdb()
    get_broker().write_mark(10**9)  # not a wipe: a loss
    dispatcher = Dispatcher(get_broker())
    wait_until(lambda: dispatcher.round() == 1, timeout=5)
    client.delete(QUEUE)
    assert rounds_for(dispatcher, settings.SEKALI_RESEND_INTERVAL / 2) == 0
    wait_until(lambda: dispatcher.round() == 1, timeout=2 * settings.SEKALI_RESEND_INTERVAL)


def _wipe_by_flush(client: redis.Redis) -> None:
    client.flushdb()


def _wipe_by_old_snapshot(client: redis.Redis) -> None:
    mark = int(client.get(MARK_KEY) or 0)
    client.flushdb()
    client.set(MARK_KEY, mark - 1)


@pytest.mark.parametrize("wipe", [_wipe_by_flush, _wipe_by_old_snapshot])
@database_only
def test_a_wiped_broker_is_filled_again(
    client: redis.Redis, wipe: object, settings: LazySettings
) -> None:
    """A7 I1: flushed, or restored from a snapshot that is older."""
    # By the mark alone: two readings of an empty queue would tell as well, and send once more.
    settings.SEKALI_EVIDENCE_INTERVAL = 60
    for _ in range(100):
        accept(publish=True)
    dispatcher = Dispatcher(get_broker())
    rounds_for(dispatcher, 1.2)
    before = BrokerMark.objects.get().number
    wipe(client)  # type: ignore[operator]
    started = time.monotonic()
    wait_until(lambda: dispatcher.round() >= 0 and messages(client) == 100, timeout=10)
    assert time.monotonic() - started < 5
    assert rounds_for(dispatcher, 1) == 0
    assert BrokerMark.objects.get().number > before


@database_only
def test_a_restarted_broker_counts_as_wiped(broker: ValkeyServer, client: redis.Redis) -> None:
    """I1: whether it kept its data or not; duplicates are dropped by the claim."""
    for _ in range(20):
        accept(publish=True)
    dispatcher = Dispatcher(get_broker())
    rounds_for(dispatcher, 1.2)
    broker.restart()
    wait_until(lambda: dispatcher.round() == 20, timeout=10)


@database_only
def test_a_broker_that_is_down_loses_nothing_and_stops_no_rescue(broker: ValkeyServer) -> None:
    """A7 I1: the dispatcher goes on when it is back."""
    stop = threading.Event()
    id = accept(publish=False)
    stuck = accept(publish=True)
    assert verbs.claim(stuck, QUEUE, claimed_by="n/1.1#a", fifo=False) is not None
    Operation.objects.filter(pk=stuck).update(due_at="2020-01-01T00:00:00Z")
    broker.kill()

    def run() -> None:
        try:
            Dispatcher(get_broker()).run(stop.wait)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: Operation.objects.get(pk=stuck).state == "pending")
        broker.start()
        with broker.client() as client:
            wait_until(lambda: messages(client) >= 2)
    finally:
        stop.set()
        thread.join(10)
    assert Operation.objects.get(pk=id).sent_at is not None


def all_done(ids: list[uuid.UUID], timeout: float) -> None:
    wait_until(
        lambda: Operation.objects.filter(id__in=ids, state="done").count() == len(ids),
        timeout=timeout,
        message="not all operations are done",
    )
    assert Effect.objects.count() == len(ids)


def test_a_thousand_pending_survive_a_wiped_broker(stack: Stack) -> None:
    """A7 I1: with everything in flight, each effect happens once."""
    stack.start(apis=0, sandbox=False, workers=0)
    ids = [accept(publish=True, label="x") for _ in range(1000)]
    stack.lab.broker.flush()
    stack.scale_workers(1)
    all_done(ids, timeout=40)


def test_one_message_taken_from_the_broker_is_noticed(stack: Stack) -> None:
    """A7 I1: on an idle queue, by two empty readings."""
    stack.start(apis=0, sandbox=False, workers=0)
    ids = [accept(publish=True, label="x") for _ in range(3)]
    with stack.lab.broker.client() as client:
        assert client.rpop(QUEUE) is not None
    stack.scale_workers(1)
    all_done(ids, timeout=20)


def test_many_operations_on_one_resource_cost_about_two_deliveries_each(stack: Stack) -> None:
    """B10 D5: the busy ones leave the queue, and each end wakes one."""
    stack.start(apis=0, sandbox=False, workers=1)
    with stack.lab.broker.client() as client:
        client.config_resetstat()
        ids = [accept(publish=True, on="r", label="x") for _ in range(200)]
        all_done(ids, timeout=40)
        pushes = client.info("commandstats")["cmdstat_lpush"]["calls"]
    assert pushes <= 2.2 * len(ids)
