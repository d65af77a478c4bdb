"""A lease server that could forget leases is refused at start-up."""

from collections.abc import Callable

import pytest
from django.core.checks import Error, run_checks
from pytest_django import Settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.lab.services import ValkeyServer


def found() -> list[str | None]:
    return [message.id for message in run_checks(tags=["locks"])]


def cache_at(url: str | list[str]) -> dict[str, dict[str, object]]:
    """The setting of a cache that none of its own checks objects to."""
    options = {
        "SOCKET_TIMEOUT": 0.25,
        "SOCKET_CONNECT_TIMEOUT": 0.25,
        "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
        "CONNECTION_POOL_KWARGS": {"retry": Retry(NoBackoff(), 0)},
    }
    return {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": url,
            "OPTIONS": options,
        }
    }


@pytest.fixture(autouse=True)
def _cache_elsewhere(settings: Settings) -> None:
    settings.CACHES = cache_at("redis://localhost:1/0")


def test_a_proper_server_passes(locks: ValkeyServer) -> None:
    """D1"""
    assert found() == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_can_evict_is_refused(
    spare: Callable[..., ValkeyServer], settings: Settings, policy: str
) -> None:
    """D1"""
    settings.LOCKS_URL = spare("evicting", maxmemory_policy=policy).url
    (message,) = run_checks(tags=["locks"])
    assert isinstance(message, Error)
    assert message.id == "locks.E004"
    assert policy in message.msg


def test_sharing_a_database_with_the_cache_is_warned_of(
    locks: ValkeyServer, settings: Settings
) -> None:
    """D1"""
    settings.CACHES = cache_at(locks.url)
    assert found() == ["locks.W001"]
    elsewhere = locks.url.removesuffix("/0") + "/1"
    settings.CACHES = cache_at([elsewhere])
    assert found() == []


def test_a_cluster_is_refused(spare: Callable[..., ValkeyServer], settings: Settings) -> None:
    """D1"""
    settings.LOCKS_URL = spare("cluster", cluster_enabled="yes").url
    assert found() == ["locks.E006"]


def test_a_server_that_is_away_stops_no_command(settings: Settings) -> None:
    """D1"""
    settings.LOCKS_URL = "redis://127.0.0.1:1/0"
    assert found() == []


@pytest.mark.parametrize(
    ("name", "value", "id"),
    [
        ("LOCKS_BACKEND", "mongo", "locks.E001"),
        ("LOCKS_URL", "", "locks.E002"),
        ("LOCKS_TIMEOUT", 0, "locks.E003"),
    ],
)
def test_wrong_settings_are_named(settings: Settings, name: str, value: object, id: str) -> None:
    """D1"""
    setattr(settings, name, value)
    assert found() == [id]


def test_rows_need_no_server(settings: Settings) -> None:
    """D3"""
    settings.LOCKS_BACKEND = "postgres"
    settings.LOCKS_URL = ""
    assert found() == []
