"""Connections to RabbitMQ for publishing and asking, each used by one thread at a time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import Any, TypeVar

import amqp
from django.conf import settings
from kombu.connection import Connection

from operations.broker.interface import Outgoing
from operations.broker.rabbitmq_frames import frames_of
from operations.broker.rabbitmq_topology import declare_dead_letter, declare_task_queue

T = TypeVar("T")

#: Idle connections that are kept.
KEPT = 8


class Session:
    """One connection: a channel for questions, and one that confirms what is published."""

    def __init__(self, url: str) -> None:
        """
        :raises OSError: nobody answers
        :raises amqp.AMQPError: it does not let us in
        """
        timeout = settings.SEKALI_PUBLISH_TIMEOUT
        # No heartbeat: nobody would send it while the session is idle. A dead session is
        # found out when it is used, and replaced.
        self._kombu = Connection(  # type: ignore[no-untyped-call]
            url,
            connect_timeout=min(timeout, 2),
            heartbeat=0,
            ssl=settings.CELERY_BROKER_USE_SSL,
            transport_options={"read_timeout": timeout, "write_timeout": timeout},
        )
        self._connection: amqp.Connection = self._kombu.connect()  # type: ignore[no-untyped-call]
        self.server = str(self._connection.server_properties.get("cluster_name", "rabbitmq"))
        #: The server closes it when something asked for is not there; it opens again.
        self.channel: amqp.Channel = self._connection.channel()
        self._publisher: amqp.Channel = self._connection.channel()
        self._publisher.confirm_select()
        self._publisher.events["basic_ack"].add(self._on_ack)
        self._publisher.events["basic_nack"].add(self._on_nack)
        self._publisher.events["basic_return"].add(self._on_return)
        self._declared: set[str] = set()
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._refused = ""
        self.is_broken = False

    def publish(self, messages: list[Outgoing]) -> None:
        """Send all, then wait until the broker has confirmed each.

        :raises amqp.AMQPError: it refused some of them
        :raises OSError: not within the time-out
        """
        self._refused = ""
        for message in messages:
            queue = message.template.queue
            if queue not in self._declared:
                self.declare_dead_letter()
                declare_task_queue(self.channel, queue)
                self._declared.add(queue)
        channel, frame_max = self._publisher.channel_id, self._connection.frame_max
        frames = b"".join(frames_of(message, channel, frame_max) for message in messages)
        # The broker counts what is published on the channel; so do we.
        first, self._published = self._published + 1, self._published + len(messages)
        self._unconfirmed.update(range(first, self._published + 1))
        self._connection.transport.write(frames)
        self._wait_for_confirms()
        if self._refused:
            self._declared.clear()
            raise amqp.RecoverableChannelError(self._refused)

    def declare_dead_letter(self) -> None:
        if "" not in self._declared:
            declare_dead_letter(self.channel)
            self._declared.add("")

    @contextmanager
    def broken_by_errors(self) -> Iterator[None]:
        """Whatever is raised inside makes the session useless."""
        try:
            yield
        except BaseException:
            self.is_broken = True
            raise

    def close(self) -> None:
        """Close without the handshake, which a dead peer would not answer."""
        self._connection.collect()

    def _wait_for_confirms(self) -> None:
        deadline = time.monotonic() + settings.SEKALI_PUBLISH_TIMEOUT
        while self._unconfirmed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(self._unconfirmed)} messages are not confirmed in time")
            self._connection.drain_events(timeout=left)

    def _on_ack(self, delivery_tag: int, multiple: bool) -> None:
        if multiple:
            self._unconfirmed = {tag for tag in self._unconfirmed if tag > delivery_tag}
        else:
            self._unconfirmed.discard(delivery_tag)

    def _on_nack(self, delivery_tag: int, multiple: bool) -> None:
        self._refused = "the broker refused a message"
        self._on_ack(delivery_tag, multiple)

    def _on_return(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:  # noqa: ARG002
        self._refused = f"there is no queue {routing_key}"


class Sessions:
    """Sessions that are free, and new ones as needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: LifoQueue[Session] = LifoQueue(KEPT)

    def run(self, use: Callable[[Session], T]) -> T:
        """Call with a session; once more with a new one, if a kept one turns out dead.

        :raises OSError: or ``amqp.AMQPError``, as the call did
        """
        session = self._take()
        if session is not None:
            try:
                return self._use(session, use)
            except (amqp.ConnectionError, OSError, AttributeError) as error:
                if isinstance(error, TimeoutError):
                    raise  # it lives, but is slow
        return self._use(Session(self._url), use)

    @contextmanager
    def lease(self) -> Iterator[Session]:
        """A session for some calls that belong together."""
        session = self._take() or Session(self._url)
        try:
            yield session
        except BaseException:
            session.is_broken = True
            raise
        finally:
            self._give_back(session)

    def _use(self, session: Session, use: Callable[[Session], T]) -> T:
        try:
            return use(session)
        except BaseException:
            session.is_broken = True
            raise
        finally:
            self._give_back(session)

    def _take(self) -> Session | None:
        try:
            return self._free.get_nowait()
        except Empty:
            return None

    def _give_back(self, session: Session) -> None:
        if session.is_broken or self._free.full():
            session.close()
        else:
            self._free.put_nowait(session)
