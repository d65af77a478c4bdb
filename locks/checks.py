"""System checks: a lease server that could forget leases is refused at start-up.

Whether the server can be reached is not checked: commands that need no lease must run
without it, and every acquire says so itself.
"""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from locks.errors import LeaseUnavailable
from locks.selection import backend_for
from locks.valkey.backend import ValkeyBackend
from locks.valkey.server import server_for

#: The scripts ask INFO for two sections at once, which older servers do not know.
_OLDEST_REDIS = 7


def check_lease_server(
    app_configs: Sequence[AppConfig] | None,  # noqa: ARG001
    **_kwargs: Any,
) -> list[checks.CheckMessage]:
    try:
        backend = backend_for(None)
    except ValueError as error:
        return [checks.Error(str(error), hint="Set LOCKS_BACKEND.", id="locks.E001")]
    if not isinstance(backend, ValkeyBackend):
        return []
    if not getattr(settings, "LOCKS_URL", ""):
        return [checks.Error("LOCKS_URL is not set.", id="locks.E002")]
    if not float(getattr(settings, "LOCKS_TIMEOUT", 0.5)) > 0:
        return [checks.Error("LOCKS_TIMEOUT must be above 0 seconds.", id="locks.E003")]
    return [*_check_cache_is_elsewhere(), *_check_server()]


def _check_cache_is_elsewhere() -> list[checks.CheckMessage]:
    ours = _database_of(settings.LOCKS_URL)
    return [
        checks.Warning(
            f"The cache {alias!r} and the leases are in one logical database.",
            hint="Clearing the cache frees every lease. Give LOCKS_URL another database.",
            id="locks.W001",
        )
        for alias, cache in settings.CACHES.items()
        for location in _locations(cache)
        if _database_of(location) == ours
    ]


def _check_server() -> list[checks.CheckMessage]:
    try:
        info = _information()
    except LeaseUnavailable:
        return []
    found: list[checks.CheckMessage] = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            checks.Error(
                f"The lease server may evict leases and fences (maxmemory-policy {policy}).",
                hint="Set maxmemory-policy noeviction, or give LOCKS_URL another server.",
                id="locks.E004",
            )
        )
    version = info.get("redis_version", "")
    if version and int(version.split(".")[0]) < _OLDEST_REDIS:
        found.append(
            checks.Error(
                f"The lease server is Redis {version}; leases need 7.0 or Valkey.",
                id="locks.E005",
            )
        )
    if "cluster" in (info.get("redis_mode"), info.get("server_mode")):  # Redis, Valkey
        found.append(
            checks.Error("The lease server is a cluster; leases need one primary.", id="locks.E006")
        )
    return found


def _information() -> dict[str, str]:
    answer: bytes = server_for().call("INFO", "server", "memory")
    return dict(re.findall(r"^(\w+):(.*?)\r?$", answer.decode(), re.MULTILINE))


def _locations(cache: dict[str, Any]) -> list[str]:
    location = cache.get("LOCATION", "")
    return [location] if isinstance(location, str) else list(location)


def _database_of(url: str) -> tuple[str, int, str]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 6379, parts.path.strip("/") or "0"
