"""How often an owner may ask: one round trip to Valkey, and none when it is away.

A limit protects the service from a client; it must not become what takes the service
down. So a server that does not answer is left alone for a while, and meanwhile every
request is let through. The cache on the same server is left alone together with it, so that
a request pays one time-out and not one for each.
"""

import logging
import math
from functools import cache
from typing import TYPE_CHECKING

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from locks.cache.breaker import breaker_for

if TYPE_CHECKING:
    from rest_framework.views import APIView

log = logging.getLogger(__name__)

#: KEYS[1]  the counter of one owner for one thing       ARGV[1]  window in ms
#: Counts one request. Returns the requests in this window and the ms until it ends.
#: The window begins with its first request, when the counter is made.
_COUNT = """
local count = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    left = tonumber(ARGV[1])
end
return {count, left}
"""


class Counters:
    """The counters on one server."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._count = self._client.register_script(_COUNT)

    def count(self, key: str, window: float) -> tuple[int, float] | None:
        """Count one request. None: the server is away.

        :param window: seconds
        :returns: how many it are in this window, and the seconds until it ends
        """
        breaker = breaker_for(self._url)
        if not breaker.may_ask():
            return None
        try:
            count, left = self._count(keys=[key], args=[math.ceil(window * 1000)])
        except ResponseError as error:
            # It is full, or was made a replica: it answers, so the cache is not left alone.
            log.warning("A limit does not hold: %s", error)
            breaker.succeeded()
            if isinstance(error, ReadOnlyError):
                # Only new connections find the primary of now.
                self._client.connection_pool.disconnect(inuse_connections=False)
            return None
        except (RedisError, OSError) as error:
            log.warning("Limits do not hold for a while: %s", error)
            breaker.failed()
            return None
        breaker.succeeded()
        return int(count), int(left) / 1000


def of_writes(owner: int, kind: str) -> float | None:
    """Count a write. Seconds to wait when the owner has sent too many, else None."""
    return _wait(f"sekali:limit:write:{owner}:{kind}", settings.SEKALI_RATE_LIMIT)


def of_reads(owner: int) -> float | None:
    """Count a read. Seconds to wait when the owner has sent too many, else None."""
    return _wait(f"sekali:limit:read:{owner}", settings.SEKALI_READ_RATE_LIMIT)


class ReadLimit(BaseThrottle):
    """The limit on reads, for every view. Writes are counted by the view, per kind."""

    _left: float | None = None

    def allow_request(self, request: Request, _view: "APIView") -> bool:
        owner = request.user.pk if request.auth else None
        if request.method not in ("GET", "HEAD", "OPTIONS") or owner is None:
            return True
        self._left = of_reads(owner)
        return self._left is None

    def wait(self) -> float | None:
        return self._left


def _wait(key: str, limit: int) -> float | None:
    counted = _counters().count(key, settings.SEKALI_RATE_WINDOW)
    if counted is None:
        return None
    count, left = counted
    return left if count > limit else None


@cache
def _counters() -> Counters:
    return Counters(settings.CACHE_URL, settings.CACHE_TIMEOUT)
