"""Redis and Valkey as broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from operations.broker.interface import Broker, BrokerUnavailable, Mark

MARK_KEY = "sekali:mark"

#: KEYS[1]  the mark          ARGV[1]  a number to write
#: Writes the number unless the mark holds a higher one. Returns what the mark holds then.
_WRITE_MARK = """
local held = tonumber(redis.call('GET', KEYS[1]) or '-1')
local number = tonumber(ARGV[1])
if number > held then
    redis.call('SET', KEYS[1], ARGV[1])
    return number
end
return held
"""


class RedisBroker(Broker):
    """A queue is a list; what a worker holds stands in one hash for all queues."""

    @cached_property
    def _client(self) -> "redis.Redis":
        options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
        return redis.Redis.from_url(
            self.url,
            socket_timeout=options["socket_timeout"],
            socket_connect_timeout=options["socket_connect_timeout"],
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )

    def ready(self, queue: str) -> int:
        with _translated():
            return int(self._client.llen(queue))

    def read_mark(self) -> Mark:
        with _translated():
            number = self._client.get(MARK_KEY)
            return Mark(
                None if number is None else int(number),
                str(self._client.info("server")["run_id"]),
            )

    def write_mark(self, number: int) -> None:
        with _translated():
            self._client.eval(_WRITE_MARK, 1, MARK_KEY, str(number))

    def ping(self) -> None:
        with _translated():
            self._client.ping()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
