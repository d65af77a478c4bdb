"""The audit as beat starts it."""

import pytest
from django.conf import settings

from config.celery import app
from locks.cache.metrics import totals
from tests.lab.processes import Stack
from tests.lab.scripted.caches import COUNTER
from tests.lab.scripted.models import Counter
from tests.lab.waiting import wait_until


@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")
def test_what_beat_starts_exists() -> None:
    """E8"""
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert "locks.audit_caches" in scheduled
    assert scheduled <= set(app.tasks)


@pytest.mark.full
def test_a_worker_finds_what_is_wrong_in_the_cache(stack: Stack) -> None:
    """E8: within its interval, and mends it."""
    stack.env["CACHE_AUDIT_INTERVAL"] = "1"
    stack.start(apis=0, workers=1, dispatchers=0, beat=True, sandbox=False)
    Counter.objects.create(name="a", value=1)
    assert COUNTER.get(name="a") == 1
    Counter.objects.update(value=2)
    wait_until(lambda: COUNTER.get(name="a") == 2, timeout=30)
    wait_until(lambda: totals()[COUNTER.name].get("mismatched") == 1, timeout=10)
