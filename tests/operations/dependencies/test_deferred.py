"""What becomes of an operation that may not call: it waits uncounted, and not for ever."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from inventory.operations import SUPPLIER
from operations import DependencyError, verbs
from operations.dependencies import calling
from operations.executor import Outcome, execute
from operations.models import Attempt, DeadLetter, Operation
from tests.lab.accepting import accept, owner
from tests.lab.services import ValkeyServer

KIND = "inventory.sync"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("broker"),
    pytest.mark.req("B6", "B7"),
]


def look_anew() -> None:
    """A look is good for half a second."""
    SUPPLIER._looked = (float("-inf"), SUPPLIER._looked[1])


@pytest.fixture(autouse=True)
def _well(locks: ValkeyServer, settings: Any) -> Iterator[None]:
    """A supplier of which nothing is known before and after, and who is not there."""
    settings.SUPPLIER_URL = "http://127.0.0.1:1"
    with locks.client() as client:
        client.delete(f"sekali:dependency:{SUPPLIER.name}")
        look_anew()
        yield
        client.delete(f"sekali:dependency:{SUPPLIER.name}")
        look_anew()


def attempt(operation: Operation) -> Outcome:
    """The next one, without the wait before it."""
    Operation.objects.filter(pk=operation.pk).update(not_before=Now())
    outcome = execute(operation.pk, KIND, process="test:1")
    operation.refresh_from_db()
    return outcome


def wait_too_long(operation: Operation) -> None:
    """As if it had been put off for hours."""
    Operation.objects.filter(pk=operation.pk).update(
        deferred_since=F("deferred_since") - timedelta(hours=2)
    )


def test_an_open_breaker_defers_without_a_trace_and_then_gives_up(settings: Any) -> None:
    """B7 C1: no attempt is counted, nothing has begun, so that it can still be cancelled."""
    operation, other = (Operation.objects.get(pk=accept(KIND, user=owner(n))) for n in "ab")
    for _ in range(settings.SEKALI_BREAKER_MINIMUM):
        with suppress(DependencyError), SUPPLIER.call():
            raise DependencyError(SUPPLIER.name)
    look_anew()
    for deferrals in (1, 2, 3):
        assert attempt(operation) == Outcome.DEFERRED
        assert (operation.state, operation.attempts, operation.epoch) == ("pending", 0, None)
        assert operation.deferrals == deferrals
    assert not Attempt.objects.exists()
    wait_too_long(operation)
    assert attempt(operation) == Outcome.DEAD
    letter = DeadLetter.objects.get()
    assert (letter.category, letter.dependency, letter.error_type, letter.state) == (
        "dependency",
        "supplier",
        "DeferredTooLong",
        "open",
    )
    assert attempt(other) == Outcome.DEFERRED
    assert other.owner_id is not None
    assert verbs.cancel(other.pk, owner=other.owner_id, versions=None) is not None


def test_a_retry_beyond_the_budget_is_deferred_uncounted_and_then_given_up() -> None:
    """B6 B7"""
    operation = Operation.objects.get(pk=accept(KIND, user=owner("a")))
    assert attempt(operation) == Outcome.RETRY
    assert operation.attempts == 1
    for _ in range(60):
        with calling(retry=True, waited=0), SUPPLIER.call():
            pass
    assert attempt(operation) == Outcome.DEFERRED
    assert (operation.state, operation.attempts, operation.deferrals) == ("pending", 1, 1)
    failed = Attempt.objects.get()
    assert (failed.outcome, failed.category, failed.dependency) == (
        "retry",
        "dependency",
        "supplier",
    )
    wait_too_long(operation)
    assert attempt(operation) == Outcome.DEAD
    assert DeadLetter.objects.get().category == "dependency"
