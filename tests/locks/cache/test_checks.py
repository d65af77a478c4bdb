"""System checks of the cache."""

from typing import Any

import pytest
from pytest_django import Settings

from locks.cache.checks import check_cache


def ids() -> list[str | None]:
    return [message.id for message in check_cache(None)]


def test_the_settings_of_this_project_pass() -> None:
    """E7"""
    assert ids() == []


@pytest.mark.parametrize(
    ("cache", "id"),
    [
        ({"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, "locks.E010"),
        ({"OPTIONS": {"CONNECTION_POOL_KWARGS": {"retry": None}}}, "locks.E011"),
        ({"OPTIONS": {"SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1}}, "locks.W010"),
    ],
)
def test_a_cache_that_cannot_be_used_well_is_told(
    settings: Settings, cache: dict[str, Any], id: str
) -> None:
    """E7"""
    settings.CACHES = {"default": {**settings.CACHES["default"], **cache}}
    assert ids() == [id]
