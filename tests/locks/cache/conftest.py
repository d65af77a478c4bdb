"""A counter in the database and an entry that caches it, in the test's own process."""

from collections.abc import Iterator

import pytest
from django.core.cache import caches
from pytest_django import DjangoDbBlocker, Settings

from locks.cache import audit
from locks.models import InvalidationRecord
from tests.lab.proxy import Proxy
from tests.lab.scripted.models import Counter
from tests.lab.services import ValkeyServer
from tests.locks.cache.shelf import Shelf


@pytest.fixture
def source(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database, committing for real; counters and records start empty."""
    with django_db_blocker.unblock():
        Counter.objects.all().delete()
        InvalidationRecord.objects.all().delete()
        yield
        Counter.objects.all().delete()
        InvalidationRecord.objects.all().delete()


@pytest.fixture
def wire(cache_server: ValkeyServer, settings: Settings) -> Iterator[Proxy]:
    """The cache of this process is reached through it."""
    settings.CACHE_REST = 0.2
    with Proxy(cache_server.url) as proxy:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": proxy.url}}
        yield proxy
        caches.close_all()


@pytest.fixture
def hasty_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes meanwhile, so what differs is wrong at once."""
    monkeypatch.setattr(audit, "GRACE", 0.001)


@pytest.fixture
def shelf(source: None, wire: Proxy) -> Shelf:
    """A counter, cached."""
    return Shelf()
