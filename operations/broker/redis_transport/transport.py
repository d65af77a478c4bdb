"""The transport, for ``redis://``, ``rediss://`` and ``sentinel://``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
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
from operations.crashpoints import reach

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
        super().__init__(*args, **kwargs)

    # --- publishing -------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)  # type: ignore[misc]
        # Replies to remote control go through a named exchange, to queues that live for
        # a second; nobody waits for a token there.
        if not message["properties"]["delivery_info"].get("exchange"):
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:  # type: ignore[attr-defined]
                wake(pipe, queue)
                pipe.execute()

    # --- consuming --------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        if no_ack:
            self._unacknowledged.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)  # type: ignore[misc]

    def _brpop_start(self, timeout: float | None = None) -> None:
        channel: Any = self
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        safe = [queue for queue in queues if queue not in self._unacknowledged]
        connection = channel.client.connection
        channel._in_poll = connection
        channel._brpop_sent_at = monotonic()
        self._look_under_way = bool(safe) and self._looking
        if self._look_under_way:
            connection.send_command(*self._take_command(safe, channel.qos.room()))
            return
        keys = [WAKE + queue for queue in safe]
        keys += [queue for queue in queues if queue in self._unacknowledged]
        connection.send_command("BRPOP", *keys, timeout or channel.brpop_timeout)

    def _take_command(self, queues: list[str], room: int) -> list[str]:
        call = ["EVALSHA", TAKE.sha] if self._script_is_known else ["EVAL", TAKE.text]
        keys = [*queues, *(WAKE + queue for queue in queues), UNACKED, UNACKED_INDEX, DEAD_LETTER]
        limit = str(settings.SEKALI_MESSAGE_LIMIT)
        arguments = [str(len(queues)), str(room), uuid4().hex, limit]
        return [*call, str(len(keys)), *keys, *arguments]

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
        reach("message.taken")
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
            call, *arguments = self._take_command([queue], 1)[1:]
            text = call if call == TAKE.text else TAKE.text
            answer = client.eval(text, *arguments)
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


class SentinelTransport(Transport):
    default_port = stock.SentinelTransport.default_port  # type: ignore[assignment]
    Channel = SentinelChannel  # type: ignore[assignment]


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
