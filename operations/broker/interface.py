"""What the platform asks of a broker."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.conf import settings

from operations import logs
from operations.broker.messages import Template, as_header, template
from operations.registry import UnknownKind
from operations.verbs import Envelope

log = logging.getLogger(__name__)


class BrokerUnavailable(Exception):
    """The broker did not answer in time. What was sent may have arrived all the same."""


class Mark(NamedTuple):
    """What shows whether a broker has forgotten what it was given."""

    number: int | None
    server: str


class Outgoing(NamedTuple):
    """A message to be sent: of which operation, and what it says."""

    id: str
    template: Template
    sent_at: str
    request_id: str


@dataclass(frozen=True)
class DeadMessage:
    """What stands in the dead letter queue: a message as it was, and what is known of it.

    ``id`` is the same each time this message is read; of two messages that are alike to
    the last byte it may be the same too, unless ``is_first`` says that this one was never
    read before.
    """

    id: str
    body: bytes
    queue: str
    headers: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    #: What the worker or the broker said of it.
    why: str = ""
    is_first: bool = False
    #: It came here because its time was over.
    expired: bool = False


class Broker(ABC):
    """Publishing, and what the dispatcher must see to know that a message is lost."""

    #: Seconds between two movements of the mark.
    mark_interval = 1.0

    def __init__(self, url: str) -> None:
        self.url = url
        self._paused_until = 0.0

    @classmethod
    def queue_arguments(cls) -> dict[str, Any]:
        """With what arguments every queue of tasks is declared."""
        return {}

    @property
    def paused(self) -> bool:
        """A publish failed a moment ago: leave it to the dispatcher for now."""
        return time.monotonic() < self._paused_until

    def try_publish(self, envelope: Envelope) -> bool:
        """Publish unless paused. A failure pauses, and is not raised.

        False says nothing about the message, which may have arrived: the row stays as it
        is, and the dispatcher sends again on evidence.
        """
        if self.paused:
            return False
        try:
            self.publish([envelope])
        except BrokerUnavailable as error:
            self._paused_until = time.monotonic() + settings.SEKALI_PUBLISH_PAUSE
            log.warning("Publishing pauses for %s s: %s", settings.SEKALI_PUBLISH_PAUSE, error)
            return False
        return True

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Send a message for each operation, in order, all in one go.

        What is of a kind unknown here is left out: a dispatcher that knows the kind finds
        that it was not sent.

        :raises BrokerUnavailable: all, some or none have arrived
        """
        outgoing = []
        request_id = logs.current("request_id")
        for id, kind, sent_at in envelopes:
            try:
                made = template(kind)
            except UnknownKind:
                log.warning("%s is of kind %r, which is unknown here; not sent.", id, kind)
                continue
            outgoing.append(Outgoing(str(id), made, as_header(sent_at), request_id))
        if outgoing:
            self._send(outgoing)

    @abstractmethod
    def _send(self, messages: list[Outgoing]) -> None:
        """
        :raises BrokerUnavailable: all, some or none have arrived
        """

    @abstractmethod
    def ready(self, queue: str) -> int:
        """How many messages wait in a queue, without those that a worker holds.

        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def read_mark(self, confirmed: int | None = None) -> Mark:
        """The number last written, and the identity of the running server.

        :param confirmed: a broker that cannot tell the number answers this one, if it
            still holds it
        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def write_mark(self, number: int) -> None:
        """Write a number, unless a higher one is there.

        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def dead_messages(self, limit: int) -> AbstractContextManager[Sequence[DeadMessage]]:
        """The oldest messages of the dead letter queue, at most ``limit``.

        Leaving the context without an exception takes them off the queue; what was read
        and not taken off is read again, here or elsewhere.

        :raises BrokerUnavailable: it does not answer, at the beginning or at the end
        """

    @abstractmethod
    def ping(self) -> None:
        """
        :raises BrokerUnavailable: it does not answer
        """
