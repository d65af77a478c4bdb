"""A client for the server behind ``redis://``, ``rediss://`` or ``sentinel://``."""

from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel


def connect(url: str) -> "redis.Redis":
    """A client that fails within the broker's time-outs instead of trying again.

    ``sentinel://[:PASSWORD@]HOST:PORT[;sentinel://HOST:PORT…]/DATABASE`` names sentinels;
    the client asks them for the master at each new connection.
    """
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    common: dict[str, Any] = {
        "socket_timeout": options["socket_timeout"],
        "socket_connect_timeout": options["socket_connect_timeout"],
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }
    if not url.startswith("sentinel://"):
        return redis.Redis.from_url(url, **common)
    parts = [urlsplit(part) for part in url.split(";")]
    password = next((unquote(p.password) for p in parts if p.password), None)
    database = next((p.path.strip("/") for p in parts if p.path.strip("/")), "0")
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(p.hostname or "localhost", p.port or 26379) for p in parts],
        sentinel_kwargs=options["sentinel_kwargs"],
        password=password,
        db=int(database),
        **common,
    )
    client: redis.Redis = sentinel.master_for(options["master_name"])  # type: ignore[no-untyped-call]
    return client
