"""What a user owns: the supplier's snapshots and the grants of purchases."""

import uuid

import pytest
from django.db import IntegrityError, transaction
from pytest_django import DjangoAssertNumQueries

from inventory.holdings import (
    Holdings,
    apply_snapshot,
    grant,
    holdings_of,
    locked_version_of,
    version_of,
)
from inventory.models import OwnedItem, Source
from inventory.supplier import Snapshot
from tests.lab.accepting import owner as user

pytestmark = pytest.mark.django_db


def apply(owner: int, revision: int, *, epoch: int, **items: int) -> bool:
    return apply_snapshot(owner, Snapshot(revision, items), epoch=epoch)


def test_who_has_nothing_has_version_0(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """G1."""
    owner = user()

    with django_assert_num_queries(1):
        assert holdings_of(owner) == Holdings(revision=None, version=0, items={})
    assert version_of(owner) == locked_version_of(owner) == 0
    assert holdings_of(owner).version == 0


@pytest.mark.req("G1")
def test_a_snapshot_replaces_what_the_supplier_told_before() -> None:
    """G1."""
    owner, other = user(), user("other")
    apply(other, 9, epoch=1, a=5)

    assert apply(owner, 1, epoch=2, a=1, b=2, unsold=3)
    assert apply(owner, 2, epoch=3, b=4, c=1, gone=0)

    assert holdings_of(owner) == Holdings(2, 2, {"b": 4, "c": 1})
    assert holdings_of(other) == Holdings(9, 1, {"a": 5})


@pytest.mark.req("B10")
def test_a_snapshot_that_is_not_newer_changes_nothing() -> None:
    """B10 G1."""
    owner = user()
    apply(owner, 5, epoch=1, a=1)

    assert not apply(owner, 4, epoch=2, a=9)
    assert not apply(owner, 5, epoch=3, a=9)

    assert holdings_of(owner) == Holdings(5, 1, {"a": 1})


@pytest.mark.req("D2")
def test_a_snapshot_of_an_earlier_epoch_changes_nothing() -> None:
    """D2 B10: a worker that was stopped, even with a newer revision in its hand."""
    owner = user()
    apply(owner, 5, epoch=8, a=1)

    assert not apply(owner, 6, epoch=7, a=9)

    assert holdings_of(owner) == Holdings(5, 1, {"a": 1})


@pytest.mark.req("G1", "G2")
def test_a_snapshot_leaves_alone_what_was_bought_here() -> None:
    """G1 G2: quantities are summed by sku."""
    owner = user()
    apply(owner, 1, epoch=1, a=1)
    grant(owner, "a", 2, operation=uuid.uuid4())
    grant(owner, "a", 3, operation=uuid.uuid4())
    assert holdings_of(owner) == Holdings(1, 3, {"a": 6})

    apply(owner, 2, epoch=2, b=1)

    assert holdings_of(owner) == Holdings(2, 4, {"a": 5, "b": 1})


def test_a_grant_before_any_sync_makes_the_inventory() -> None:
    """G2."""
    owner = user()

    grant(owner, "a", 2, operation=uuid.uuid4())

    assert holdings_of(owner) == Holdings(None, 1, {"a": 2})
    assert apply(owner, 0, epoch=1), "revision 0 is newer than none"


@pytest.mark.req("F2")
def test_an_operation_grants_once() -> None:
    """F2."""
    owner, operation = user(), uuid.uuid4()
    grant(owner, "a", 1, operation=operation)

    with (
        pytest.raises(IntegrityError, match="inventory_one_grant_per_operation"),
        transaction.atomic(),
    ):
        grant(owner, "a", 1, operation=operation)

    assert holdings_of(owner) == Holdings(None, 1, {"a": 1})


@pytest.mark.req("F2")
@pytest.mark.parametrize(
    ("wrong", "constraint"),
    [
        ({"sku": "a"}, "inventory_one_supplier_line_per_sku"),
        ({"operation": uuid.UUID(int=1)}, "inventory_only_purchases_are_granted"),
        ({"source": Source.PURCHASE}, "inventory_only_purchases_are_granted"),
        ({"quantity": 0}, "inventory_owned_quantity_is_positive"),
    ],
)
def test_the_database_refuses_what_cannot_be(wrong: dict[str, object], constraint: str) -> None:
    """F1 F2."""
    owner = user()
    apply(owner, 1, epoch=1, a=1)
    line = {"sku": "b", "quantity": 1, "source": Source.SUPPLIER, "operation": None, **wrong}

    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        OwnedItem.objects.create(owner_id=owner, **line)
