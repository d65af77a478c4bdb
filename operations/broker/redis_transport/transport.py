"""The transport, for ``redis://``, ``rediss://`` and ``sentinel://``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from queue import Empty
from time import monotonic
from typing import Any
from uuid import uuid4

from django.conf import settings
from kombu.transport import redis as stock
from kombu.utils import json
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from operations.broker.names import DEAD_LETTER
from operations.broker.redis_transport.names import UNACKED, UNACKED_INDEX, WAKE, wake
from operations.broker.redis_transport.receipts import Receipts
from operations.broker.redis_transport.scripts import TAKE

log = logging.getLogger(__name__)


class _SafeChannel:
    """What replaces parts of kombu's channel, plain or for Sentinel.

    The poller asks for a read whenever none is under way (``_brpop_start``) and calls
    ``_brpop_read`` when the answer is there. A read is either a look (the script
    ``take``, which answers at once) or, when the last look found nothing, a wait for a
    wake token.
    """

    QoS = Receipts

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: Queues whose messages are not acknowledged, such as those for replies to remote
        #: control: they are read as the stock transport reads them.
        self._unacknowledged: set[str] = set()
        self._looking = True
        self._look_under_way = False
        self._script_is_known = False
        self._waiting_client: Any = None
        super().__init__(*args, **kwargs)

    # --- publishing -------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)  # type: ignore[misc]
        # Replies to remote control go through a named exchange, to queues that live for
        # a second; nobody waits for a token there.
        if not message["properties"]["delivery_info"].get("exchange"):
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
                wake(pipe, queue)
                pipe.execute()

    # --- consuming --------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        if no_ack:
            self._unacknowledged.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)  # type: ignore[misc]

    def _basic_cancel(self, consumer_tag: str) -> Any:
        cancelled = super()._basic_cancel(consumer_tag)  # type: ignore[misc]
        if not self.looks_next:
            self.qos.answer_now()  # type: ignore[attr-defined]
        return cancelled

    def _brpop_start(self, timeout: float | None = None) -> None:
        channel: Any = self
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        safe = [queue for queue in queues if queue not in self._unacknowledged]
        connection = channel.client.connection
        channel._in_poll = connection
        channel._brpop_sent_at = monotonic()
        # A look also answers for messages, so one that has some is worth its while.
        answers = channel.qos.answers()
        self._look_under_way = bool(safe) and (self._looking or bool(answers))
        if self._look_under_way:
            call = self._take_call(safe, channel.qos.room(), answers)
            connection.send_packed_command([call])
            return
        keys = [WAKE + queue for queue in safe]
        keys += [queue for queue in queues if queue in self._unacknowledged]
        connection.send_command("BRPOP", *keys, timeout or channel.brpop_timeout)

    @property
    def looks_next(self) -> bool:
        """Whether the event loop is about to look for messages, as it does where there is
        room for one and nobody looks or waits already."""
        channel: Any = self
        return (
            channel.connection.has_loop
            and channel._in_poll is None
            and channel.qos.can_consume()
            and any(queue not in self._unacknowledged for queue in channel.active_queues)
        )

    def _take_call(self, queues: list[str], room: int, answers: list[str]) -> bytes:
        """The command as it goes over the wire. Sent for each message, so it is put
        together from parts that are made once; redis-py needs ten times as long."""
        count, fixed = _call_of(tuple(queues), self._script_is_known)
        arguments = [*_take_arguments(queues, room), *answers]
        words = b"".join(_bulk(argument) for argument in arguments)
        return b"*%d\r\n" % (count + len(arguments)) + fixed + words

    def _brpop_read(self, **options: Any) -> bool:
        channel: Any = self
        client = channel.client
        look, self._look_under_way = self._look_under_way, False
        try:
            try:
                answer = client.parse_response(
                    client.connection, "EVALSHA" if look else "BRPOP", **options
                )
            except NoScriptError:
                self._script_is_known = False
                channel.qos.answer_again()
                raise Empty from None
            except channel.connection_errors:
                client.connection.disconnect()
                raise
        finally:
            channel._in_poll = None
            channel._flush_brpop_reauth()
        if not look:
            self._looking = True
            return self._on_waited(answer)
        self._script_is_known = True
        self._looking = bool(answer)
        return self._on_taken(answer)

    def _on_waited(self, answer: Any) -> bool:
        """A token, nothing within the time, or a message that is not acknowledged."""
        if answer:
            key, item = answer
            queue = key.decode()
            if not queue.startswith(WAKE):
                channel: Any = self
                channel._queue_cycle.rotate(queue)
                with _nothing_escapes(channel):
                    channel.connection._deliver(_loads(item), queue)
                return True
        raise Empty

    def _on_taken(self, answer: list[bytes]) -> bool:
        if not answer:
            raise Empty
        channel: Any = self
        taken = list(zip(*[iter(answer)] * 3, strict=True))
        # All of them first: if the connection breaks while one is delivered, the others
        # must be put back too.
        channel.qos.taken(receipt.decode() for _, receipt, _ in taken)
        for queue, receipt, item in taken:
            self._deliver(queue.decode(), receipt.decode(), item)
        return True

    def _deliver(self, queue: str, receipt: str, item: bytes) -> None:
        channel: Any = self
        channel._queue_cycle.rotate(queue)
        try:
            message = _loads(item)
            message["properties"]["delivery_tag"] = receipt
            message["properties"].setdefault(
                "delivery_info", {"exchange": "", "routing_key": queue}
            )
            callback = channel.connection._callbacks[queue]
        except Exception as error:  # noqa: BLE001  (whatever the bytes are)
            if queue in channel.connection._callbacks:
                log.error("What is in %s is no message: %r", queue, error)
                self.explain(receipt, f"no message: {error!r}")
                channel.qos.reject(receipt)
            else:
                channel.qos.reject(receipt, requeue=True)
            return
        try:
            callback(message)
        except _broken(channel):
            raise
        except Exception as error:
            log.exception("A message in %s cannot be handled.", queue)
            self.explain(receipt, f"cannot be handled: {error!r}")
            channel.qos.reject(receipt)

    def explain(self, receipt: str, why: str) -> None:
        """Say why a message will be rejected; it stands beside it in the dead letters."""
        self.qos.reasons[receipt] = why  # type: ignore[attr-defined]

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        """One message, at once. For those who poll, as ``basic_get`` does."""
        channel: Any = self
        with channel.conn_or_acquire() as client:
            keys = _take_keys((queue,))
            answer = client.eval(TAKE.text, len(keys), *keys, *_take_arguments([queue], 1))
        if not answer:
            raise Empty
        _, receipt, item = answer
        message = _loads(item)
        message["properties"]["delivery_tag"] = receipt.decode()
        return message

    def _deliver_fanout_message(self, message: Any, exchange: str) -> bool:
        with _nothing_escapes(self):
            return bool(super()._deliver_fanout_message(message, exchange))  # type: ignore[misc]
        return False

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """A client for calls that wait for their answer; one, where kombu makes one each time."""
        channel: Any = self
        if client is None:
            client = self._waiting_client
            if client is None or client.connection_pool is not channel.pool:
                client = self._waiting_client = channel._create_client()
        yield client

    # --- the end ----------------------------------------------------------------------

    def close(self) -> None:
        channel: Any = self
        if self._look_under_way and channel._in_poll:
            # What the look has taken must be put back with the rest.
            try:
                answer = channel.client.parse_response(channel.client.connection, "EVALSHA")
                channel.qos.taken(receipt.decode() for receipt in answer[1::3])
            except (RedisError, OSError, TypeError) as error:
                log.warning("The answer of the broker is lost: %s", error)
        # Otherwise a wait is under way, which has nothing to lose.
        self._look_under_way = False
        try:
            channel.qos.answer_now()
        except (RedisError, OSError) as error:
            log.warning("Messages that are done will be delivered again: %s", error)
        channel._in_poll = None
        super().close()  # type: ignore[misc]

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        transport = self.connection  # type: ignore[attr-defined]
        if transport is None or transport.client is None:
            # Otherwise an AttributeError, which nobody takes for a lost connection.
            raise RedisConnectionError("The connection to the broker is closed.")
        return super()._connparams(asynchronous)  # type: ignore[misc, no-any-return]


class Channel(_SafeChannel, stock.Channel):  # type: ignore[misc]
    pass


class SentinelChannel(_SafeChannel, stock.SentinelChannel):  # type: ignore[misc]
    pass


class Transport(stock.Transport):
    Channel = Channel
    #: Whether an event loop reads from it, as a worker's does.
    has_loop = False

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]
        self.has_loop = True


class SentinelTransport(Transport):
    default_port = stock.SentinelTransport.default_port  # type: ignore[assignment]
    Channel = SentinelChannel  # type: ignore[assignment]


def _take_keys(queues: tuple[str, ...]) -> list[str]:
    return [*queues, *(WAKE + queue for queue in queues), UNACKED, UNACKED_INDEX, DEAD_LETTER]


def _take_arguments(queues: list[str], room: int) -> list[str]:
    return [str(len(queues)), str(room), uuid4().hex, str(settings.SEKALI_MESSAGE_LIMIT)]


@lru_cache(256)
def _call_of(queues: tuple[str, ...], script_is_known: bool) -> tuple[int, bytes]:
    """All but the arguments, and of how many words. The queues come in changing order, since
    each has its turn."""
    call = ["EVALSHA", TAKE.sha] if script_is_known else ["EVAL", TAKE.text]
    keys = _take_keys(queues)
    words = [*call, str(len(keys)), *keys]
    return len(words), b"".join(_bulk(word) for word in words)


def _bulk(word: str) -> bytes:
    data = word.encode()
    return b"$%d\r\n%s\r\n" % (len(data), data)


def _loads(item: bytes) -> Any:
    return json.loads(item.decode())  # type: ignore[no-untyped-call]


def _broken(channel: Any) -> tuple[type[BaseException], ...]:
    # Kombu counts a KeyError among them, but here it is something that a message lacks.
    return tuple(error for error in channel.connection_errors if error is not KeyError)


@contextmanager
def _nothing_escapes(channel: Any) -> Iterator[None]:
    try:
        yield
    except _broken(channel):
        raise
    except Exception:
        log.exception("What arrived cannot be handled; it is left alone.")
