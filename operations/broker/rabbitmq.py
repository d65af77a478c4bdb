"""RabbitMQ as broker: quorum queues, publisher confirms, a dead letter exchange."""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import amqp
from amqp.exceptions import NotFound
from kombu.exceptions import KombuError

from operations.broker.interface import Broker, BrokerUnavailable, DeadMessage, Mark, Outgoing
from operations.broker.names import DEAD_LETTER
from operations.broker.rabbitmq_session import Session, Sessions
from operations.broker.rabbitmq_topology import declare_dead_letter, task_queue_arguments

#: An exchange of this name and a number stands for the mark; see :meth:`read_mark`.
MARK = "sekali.mark."
#: So many marks are kept, for dispatchers that read the last one a while ago.
MARKS_KEPT = 20


class RabbitBroker(Broker):
    """Publishing waits for the broker's confirmation, once for a whole batch."""

    # Each movement is a change of the cluster's metadata.
    mark_interval = 30.0

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._sessions = Sessions(url)

    @classmethod
    def queue_arguments(cls) -> dict[str, Any]:
        return task_queue_arguments()

    def _send(self, messages: list[Outgoing]) -> None:
        with _translated():
            self._sessions.run(lambda session: session.publish(messages))

    def ready(self, queue: str) -> int:
        def ask(session: Session) -> int:
            try:
                return int(session.channel.queue_declare(queue, passive=True).message_count)
            except NotFound:
                return 0

        with _translated():
            return self._sessions.run(ask)

    def read_mark(self, confirmed: int | None = None) -> Mark:
        """Nothing in RabbitMQ can be read without being taken, and a mark that one
        dispatcher has taken looks to the next one like a wipe. So a mark is a durable
        exchange that nobody uses, and reading it is to ask whether it is there."""

        def ask(session: Session) -> Mark:
            number = confirmed
            if number is not None:
                try:
                    session.channel.exchange_declare(f"{MARK}{number}", "fanout", passive=True)
                except NotFound:
                    number = None
            return Mark(number, session.server[:64])

        with _translated():
            return self._sessions.run(ask)

    def write_mark(self, number: int) -> None:
        def write(session: Session) -> None:
            session.channel.exchange_declare(
                f"{MARK}{number}", "fanout", durable=True, auto_delete=False
            )
            session.channel.exchange_delete(f"{MARK}{number - MARKS_KEPT}")

        with _translated():
            self._sessions.run(write)

    @contextmanager
    def dead_messages(self, limit: int) -> Iterator[Sequence[DeadMessage]]:
        with _translated(), self._sessions.lease() as session:
            # Each time: while the exchange is missing, nothing that is rejected arrives here.
            declare_dead_letter(session.channel)
            found: list[amqp.Message] = []
            with _any_depth():
                while len(found) < limit:
                    message = session.channel.basic_get(DEAD_LETTER)
                    if message is None:
                        break
                    found.append(message)
            # Whatever happens from here to the acknowledgement closes the session, and
            # RabbitMQ puts the messages back.
            with session.broken_by_errors():
                yield [_dead_message(message) for message in found]
                if found:
                    session.channel.basic_ack(found[-1].delivery_tag, multiple=True)
                    # An acknowledgement has no answer; this has, and comes after it.
                    session.channel.queue_declare(DEAD_LETTER, passive=True)

    def ping(self) -> None:
        with _translated():
            self._sessions.run(lambda session: session.channel.flow(True))


def _dead_message(message: amqp.Message) -> DeadMessage:
    properties = dict(message.properties)
    headers = dict(properties.pop("application_headers", {}))
    # Grows with each delivery of the very same message.
    headers.pop("x-delivery-count", None)
    death: dict[str, Any] = next(iter(headers.get("x-death", ())), {})
    body = message.body if isinstance(message.body, bytes) else str(message.body).encode()
    try:
        about = json.dumps([headers, properties], sort_keys=True, default=str)
    except RecursionError:
        about = "nested too deep"
    reason = str(death.get("reason", ""))
    return DeadMessage(
        id=hashlib.sha256(about.encode() + b"\n" + body).hexdigest(),
        body=body,
        queue=str(death.get("queue", DEAD_LETTER)),
        headers={name: value for name, value in headers.items() if not _is_brokers(name)},
        properties=properties | {k: v for k, v in headers.items() if _is_brokers(k)},
        why=f"dead-lettered by the broker: {reason}" if reason else "put there directly",
        is_first=not message.delivery_info.get("redelivered", True),
        expired=reason == "expired",
    )


@contextmanager
def _any_depth() -> Iterator[None]:
    """Headers may be nested as deep as fits into a frame, and py-amqp reads them recursively.
    One that cannot be read would keep all others from being recorded."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def _is_brokers(header: str) -> bool:
    return header.startswith(("x-death", "x-first-death-", "x-last-death-"))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (amqp.AMQPError, KombuError, OSError, AttributeError) as error:
        # py-amqp raises AttributeError here and there when a connection is lost.
        raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
