"""System checks: a cache that this package could not use well is refused at start-up.

Where nothing is declared to be cached, none is needed, nor django-redis: leases do without.
"""

from collections.abc import Sequence
from typing import Any, cast

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.cache import caches
from django.utils.module_loading import import_string

from locks.cache.entry import entries
from locks.cache.store import ALIAS

#: What django-redis takes when it is told nothing.
_PICKLE = "django_redis.serializers.pickle.PickleSerializer"


def check_cache(
    app_configs: Sequence[AppConfig] | None,  # noqa: ARG001
    **_kwargs: Any,
) -> list[checks.CheckMessage]:
    if not any(entries()):
        return []
    from django_redis.cache import RedisCache
    from django_redis.serializers.pickle import PickleSerializer

    if not isinstance(caches[ALIAS], RedisCache):
        return [
            checks.Error(
                f"The cache {ALIAS!r} is not django_redis.cache.RedisCache.",
                hint="Fill tokens need a server that runs scripts: Redis 7.0, or Valkey.",
                id="locks.E010",
            )
        ]
    cache = cast("dict[str, Any]", settings.CACHES[ALIAS])
    options = cache.get("OPTIONS", {})
    found: list[checks.CheckMessage] = []
    if not options.get("SOCKET_TIMEOUT") or not options.get("SOCKET_CONNECT_TIMEOUT"):
        found.append(
            checks.Error(
                f"The cache {ALIAS!r} has no time-outs: frozen, it would freeze its readers.",
                hint="Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in its OPTIONS.",
                id="locks.E011",
            )
        )
    serializer = import_string(options.get("SERIALIZER", _PICKLE))
    if issubclass(serializer, PickleSerializer):
        found.append(
            checks.Error(
                f"The cache {ALIAS!r} holds pickles: who can write there can run code here.",
                hint='Set SERIALIZER="django_redis.serializers.json.JSONSerializer" in OPTIONS.',
                id="locks.E012",
            )
        )
    if "retry" not in options.get("CONNECTION_POOL_KWARGS", {}):
        found.append(
            checks.Warning(
                f"The cache {ALIAS!r} tries to connect many times before it gives up.",
                hint="Its OPTIONS need CONNECTION_POOL_KWARGS with retry=Retry(NoBackoff(), 0).",
                id="locks.W010",
            )
        )
    return found
