"""What the platform asks of a broker."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from celery import current_app
from django.conf import settings
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from operations import logs, registry
from operations.verbs import Envelope

log = logging.getLogger(__name__)

_FAILURES = (KombuError, RedisError, OSError, TimeoutError)


class BrokerUnavailable(Exception):
    """The broker did not answer in time. What was sent may have arrived all the same."""


class Mark(NamedTuple):
    """What shows whether a broker has forgotten what it was given."""

    number: int | None
    server: str


class Broker(ABC):
    """Publishing, and what the dispatcher must see to know that a message is lost."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._paused_until = 0.0

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

    def publish(self, envelopes: Iterable[Envelope]) -> None:
        """Send a message for each operation, in order.

        :raises BrokerUnavailable: at the first that fails; those after it were not sent
        """
        try:
            pool = current_app.amqp.producer_pool
            with pool.acquire(block=True, timeout=1) as producer:
                for id, kind in envelopes:
                    current_app.send_task(
                        kind,
                        args=[str(id)],
                        task_id=str(id),
                        queue=registry.get(kind).queue,
                        producer=producer,
                        retry=False,
                        ignore_result=True,
                        headers={"request_id": logs.current("request_id")},
                    )
        except _FAILURES as error:
            raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error

    @abstractmethod
    def ready(self, queue: str) -> int:
        """How many messages wait in a queue, without those that a worker holds.

        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def read_mark(self) -> Mark:
        """The number last written, and the identity of the running server.

        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def write_mark(self, number: int) -> None:
        """Write a number, unless a higher one is there.

        :raises BrokerUnavailable: it does not answer
        """

    @abstractmethod
    def ping(self) -> None:
        """
        :raises BrokerUnavailable: it does not answer
        """
