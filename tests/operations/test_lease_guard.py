"""Operators cannot take a lease away under the feet of what is running."""

import uuid
from collections.abc import Iterator

import pytest
from django.db import connection

from locks import Lease
from locks.held import LeaseInUse, force_release
from operations import verbs
from operations.executor import lease_owner
from tests.lab.accepting import accept
from tests.lab.services import ValkeyServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def held(locks: ValkeyServer) -> Iterator[tuple[uuid.UUID, Lease]]:
    """A running operation and its lease."""
    id = accept(publish=False, on="r")
    row = verbs.claim(id, "scripted.local", claimed_by="n/1.1#a", fifo=False)
    assert row is not None
    lease = Lease("r", ttl=30, owner=lease_owner(id, row.epoch))
    assert lease.acquire()
    yield id, lease
    lease.release()


def test_the_lease_of_a_running_operation_cannot_be_freed(held: tuple[uuid.UUID, Lease]) -> None:
    """D4: the refusal names the operation."""
    id, _ = held
    with pytest.raises(LeaseInUse, match=str(id)):
        force_release("r", by="operator", reason="it looks old")


def test_it_can_be_freed_when_the_claim_has_expired(held: tuple[uuid.UUID, Lease]) -> None:
    """D4: an operation whose heartbeat ended does not protect its lease."""
    id, _ = held
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE operations_operation SET due_at = statement_timestamp() WHERE id = %s", [id]
        )
    force_release("r", by="operator", reason="its worker is gone")
    assert Lease("r", ttl=1).acquire()


def test_a_lease_of_other_code_is_not_protected(locks: ValkeyServer) -> None:
    """D4: nor is a look at the database worth an error."""
    assert Lease("other", ttl=30, owner="somebody").acquire()
    force_release("other", by="operator", reason="nobody knows it")
    assert Lease("other", ttl=1).acquire()
