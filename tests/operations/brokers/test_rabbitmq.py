"""What the platform asks of a broker, on RabbitMQ."""

import contextlib
import sys
import time
from collections.abc import Iterator

import amqp
import pytest
from django.conf import LazySettings

from operations.broker import BrokerUnavailable, get_broker
from operations.broker.interface import Broker
from operations.broker.names import DEAD_LETTER
from operations.broker.rabbitmq_topology import DEAD_LETTER_EXCHANGE
from operations.broker_watch import BrokerWatch
from operations.dispatcher import Dispatcher
from operations.models import DeadLetter, Operation
from operations.recorder import Recorder
from operations.verbs import Envelope
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.rabbitmq import RabbitServer
from tests.lab.services import Lab, ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND
from tests.operations.brokers.conftest import empty

pytestmark = pytest.mark.req("B12", "I1")


@pytest.fixture
def rabbit(rabbit_server: RabbitServer, settings: LazySettings) -> Iterator[RabbitServer]:
    """RabbitMQ, empty, as this process's broker."""
    empty(rabbit_server)
    settings.BROKER_URL = rabbit_server.url
    settings.SEKALI_PUBLISH_TIMEOUT = 1.0
    yield rabbit_server
    rabbit_server.recover()


@pytest.fixture
def broker(rabbit: RabbitServer) -> Broker:
    return get_broker()


@pytest.mark.django_db(transaction=True)
def test_a_mark_outlives_a_restart_and_not_a_wipe(rabbit: RabbitServer, broker: Broker) -> None:
    """I1: confirmed messages outlive it too, so only a wipe has everything sent again."""
    watch = BrokerWatch(broker)
    assert watch.look() is False
    id = accept(KIND)
    watch._next_look = 0
    assert watch.look() is False
    rabbit.restart()
    watch._next_look = 0
    wait_until(lambda: _look(watch) is False, timeout=10)
    assert broker.ready(KIND) == 1
    rabbit.wipe()
    watch._next_look = 0
    wait_until(lambda: _look(watch) is True, timeout=10)
    assert Operation.objects.get(pk=id).sent_at is None
    assert broker.ready(KIND) == 0
    dispatcher = Dispatcher(broker)
    wait_until(lambda: dispatcher.round() >= 0 and broker.ready(KIND) == 1, timeout=10)


def _look(watch: BrokerWatch) -> bool | None:
    try:
        return watch.look()
    except BrokerUnavailable:
        return None


@pytest.mark.django_db(transaction=True)
def test_two_dispatchers_share_the_mark(broker: Broker) -> None:
    """I1: none takes it away from the other, which would look like a wipe."""
    watches = [BrokerWatch(broker) for _ in range(3)]
    for _ in range(30):
        for watch in watches:
            watch._next_look = watch._next_move = 0
            assert watch.look() is False


@pytest.mark.django_db(transaction=True)
def test_what_is_not_confirmed_in_time_was_not_published(
    rabbit: RabbitServer, broker: Broker
) -> None:
    """I1: a broker out of memory takes nothing more; a frozen one does not answer."""
    envelope = Envelope(accept(KIND), KIND)
    rabbit.ctl("set_vm_memory_high_watermark", "0.00001")
    try:
        wait_until(lambda: not _publishes(broker, envelope), timeout=10)
        started = time.monotonic()
        assert not _publishes(broker, envelope)
        assert time.monotonic() - started < 3
    finally:
        rabbit.ctl("set_vm_memory_high_watermark", "0.6")
    wait_until(lambda: _publishes(broker, envelope), timeout=10)
    rabbit.stop()
    started = time.monotonic()
    assert not _publishes(broker, envelope)
    assert time.monotonic() - started < 4
    rabbit.cont()
    wait_until(lambda: _publishes(broker, envelope), timeout=10)


def _publishes(broker: Broker, envelope: Envelope) -> bool:
    try:
        broker.publish([envelope])
    except BrokerUnavailable:
        return False
    return True


@pytest.mark.django_db(transaction=True)
def test_a_queue_that_was_deleted_is_made_again(rabbit: RabbitServer, broker: Broker) -> None:
    """I1: the broker confirms what it cannot route; we ask it to say so."""
    envelope = Envelope(accept(KIND), KIND)
    with rabbit.connect() as connection:
        connection.channel().queue_delete(KIND)
    assert broker.ready(KIND) == 0
    assert not _publishes(broker, envelope)
    assert _publishes(broker, envelope)
    assert broker.ready(KIND) == 1
    rabbit.settle()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["exchange", "queue"])
def test_a_place_for_dead_letters_that_was_deleted_is_made_again(
    rabbit: RabbitServer, broker: Broker, what: str
) -> None:
    """C5: at the next look. What was rejected meanwhile stays in its queue, and RabbitMQ
    tries again later."""
    recorder = Recorder(broker)
    assert recorder.look() == 0
    with rabbit.connect() as connection:
        channel = connection.channel()
        if what == "exchange":
            channel.exchange_delete(DEAD_LETTER_EXCHANGE)
        else:
            channel.queue_delete(DEAD_LETTER)
        _looked(recorder)
        channel.basic_publish(amqp.Message(b"garbage", delivery_mode=2), routing_key=KIND)
        message = wait_until(lambda: channel.basic_get(KIND))
        channel.basic_reject(message.delivery_tag, requeue=False)
    wait_until(lambda: _looked(recorder) and DeadLetter.objects.exists(), timeout=20)
    rabbit.settle()


@pytest.mark.django_db(transaction=True)
def test_headers_of_any_depth_can_be_recorded(rabbit: RabbitServer, broker: Broker) -> None:
    """C5: or they would stand in the way of all that come after them."""
    deep: list[object] = []
    for _ in range(3_000):
        deep = [deep]
    with rabbit.connect() as connection:
        channel = connection.channel()
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(200_000)
        try:
            message = amqp.Message(b"{}", application_headers={"deep": deep}, delivery_mode=2)
            channel.basic_publish(message, routing_key=DEAD_LETTER)
        finally:
            sys.setrecursionlimit(usual)
        channel.basic_publish(amqp.Message(b"next", delivery_mode=2), routing_key=DEAD_LETTER)
    recorder = Recorder(broker)
    wait_until(lambda: _looked(recorder) and DeadLetter.objects.count() == 2, timeout=10)
    assert broker.ready(DEAD_LETTER) == 0


def _looked(recorder: Recorder) -> bool:
    recorder._next_look = 0
    with contextlib.suppress(BrokerUnavailable):
        recorder.look()
    return True


def test_a_second_worker_of_the_same_name_works(
    lab: Lab, database: str, locks: ValkeyServer, cache_server: ValkeyServer, rabbit: RabbitServer
) -> None:
    """B12: without remote control while the first has the mailbox; it is no reason to end."""
    with Stack(lab, database, broker_url=rabbit.url, name="twins") as stack:
        stack.start(apis=0, sandbox=False, dispatchers=0)
        first = stack.workers[0]
        twin = stack.process(first.command, lambda worker: "ready." in worker.output())
        twin.log = stack.directory / "twin.log"
        stack.workers.append(twin.start())
        ids = [accept(KIND, script=["sleep:0.3"]) for _ in range(8)]
        wait_until(
            lambda: Operation.objects.filter(id__in=ids, state="done").count() == 8, timeout=20
        )
        assert all("attempt done" in worker.output() for worker in stack.workers)
        assert "No remote control" in twin.output()


@pytest.mark.full
def test_an_answer_that_is_overdue_costs_a_channel_not_a_worker(
    lab: Lab, database: str, locks: ValkeyServer, cache_server: ValkeyServer, rabbit: RabbitServer
) -> None:
    """B3 B12: though a check keeps the time limits below ``consumer_timeout``."""
    rabbit.ctl("eval", "application:set_env(rabbit, consumer_timeout, 3000).")
    rabbit.ctl("eval", "application:set_env(rabbit, channel_tick_interval, 1000).")
    try:
        with Stack(lab, database, broker_url=rabbit.url, name="overdue") as stack:
            stack.start(apis=0, sandbox=False)
            pid = stack.workers[0].pid
            id = accept(KIND, script=["sleep:7"])
            wait_until(lambda: "PRECONDITION_FAILED" in stack.workers[0].output(), timeout=30)
            wait_until(lambda: Operation.objects.get(pk=id).state == "done", timeout=15)
            other = accept(KIND)
            wait_until(lambda: Operation.objects.get(pk=other).state == "done", timeout=15)
            assert Operation.objects.get(pk=id).attempts == 1
            assert stack.workers[0].is_running
            assert stack.workers[0].pid == pid
    finally:
        rabbit.ctl("eval", "application:set_env(rabbit, consumer_timeout, 60000).")
        rabbit.ctl("eval", "application:set_env(rabbit, channel_tick_interval, 60000).")
