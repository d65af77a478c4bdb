"""System checks of the cache."""

from typing import Any, cast

import pytest
from django.conf import settings as configured
from pytest_django import Settings

from locks.cache.checks import check_cache

OPTIONS = cast("dict[str, Any]", configured.CACHES["default"]["OPTIONS"])
SERIALIZERS = "django_redis.serializers"
JSON = {"SERIALIZER": f"{SERIALIZERS}.json.JSONSerializer"}
#: Also what django-redis takes when it is told nothing.
PICKLE = "locks.E012"


def ids() -> list[str | None]:
    return [message.id for message in check_cache(None)]


def test_the_settings_of_this_project_pass() -> None:
    """E7"""
    assert ids() == []


@pytest.mark.parametrize(
    ("cache", "id"),
    [
        ({"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, "locks.E010"),
        ({"OPTIONS": {**JSON, "CONNECTION_POOL_KWARGS": {"retry": None}}}, "locks.E011"),
        (
            {"OPTIONS": {**JSON, "SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1}},
            "locks.W010",
        ),
        ({"OPTIONS": {**OPTIONS, "SERIALIZER": f"{SERIALIZERS}.pickle.PickleSerializer"}}, PICKLE),
        ({"OPTIONS": {name: OPTIONS[name] for name in OPTIONS if name != "SERIALIZER"}}, PICKLE),
    ],
)
def test_a_cache_that_cannot_be_used_well_is_told(
    settings: Settings, cache: dict[str, Any], id: str
) -> None:
    """E7"""
    settings.CACHES = {"default": {**settings.CACHES["default"], **cache}}
    assert ids() == [id]
