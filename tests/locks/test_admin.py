"""The page of leases in Django admin."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import Settings

from locks import Lease, held
from locks.backend import HeldLease
from tests.lab.services import ValkeyServer

URL = "/admin/locks/leaserow/"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def guards(monkeypatch: pytest.MonkeyPatch) -> list[held.Guard]:
    """No guards but the test's own."""
    mine: list[held.Guard] = []
    monkeypatch.setattr(held, "_guards", mine)
    return mine


@pytest.fixture
def staff(locks: ValkeyServer) -> Callable[..., Client]:
    """Logs somebody in who may do what is named."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create(username="-".join(permissions) or "nobody", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def lease(locks: ValkeyServer) -> Iterator[Lease]:
    lease = Lease("inventory:user:42", ttl=60, owner="operation-7:3")
    lease.acquire()
    yield lease
    lease.release()


def free(client: Client, **changes: str) -> str:
    form = {"key": "inventory:user:42", "owner": "operation-7:3", "reason": "host gone", **changes}
    return client.post(URL, form, follow=True).content.decode()


def test_it_lists_who_holds_what(
    staff: Callable[..., Client], lease: Lease, settings: Settings
) -> None:
    """D4 H6"""
    client = staff("view_leaserow")
    page = client.get(URL).content.decode()
    assert "inventory:user:42" in page
    assert "operation-7:3" in page
    assert ", old" not in page
    assert "Free by force" not in page
    settings.LOCKS_OLD_AFTER = 0
    assert ", old" in client.get(URL).content.decode()


def test_it_is_for_those_who_may_see_it(staff: Callable[..., Client], lease: Lease) -> None:
    """D4 H6"""
    assert staff().get(URL).status_code == 403
    viewer = staff("view_leaserow")
    form = {"key": lease.key, "owner": lease.owner, "reason": "because"}
    assert viewer.post(URL, form).status_code == 403
    lease.renew()


def test_a_lease_is_freed_with_a_reason_that_is_kept(
    staff: Callable[..., Client], lease: Lease
) -> None:
    """D4 H6"""
    client = staff("view_leaserow", "delete_leaserow")
    assert "needs a reason" in free(client, reason=" ")
    lease.renew()
    assert "Freed inventory:user:42" in free(client)
    assert Lease("inventory:user:42", ttl=5, owner="next").acquire()
    (entry,) = LogEntry.objects.all()
    assert entry.object_id == "inventory:user:42"
    assert "host gone" in entry.change_message


def test_a_successor_of_the_holder_on_the_page_is_spared(
    staff: Callable[..., Client], lease: Lease
) -> None:
    """D4: the page may be old."""
    client = staff("view_leaserow", "delete_leaserow")
    assert "does not hold" in free(client, owner="operation-6:1")
    lease.renew()
    assert not LogEntry.objects.exists()


def test_work_that_goes_on_is_not_disturbed(
    staff: Callable[..., Client], lease: Lease, guards: list[held.Guard]
) -> None:
    """D4"""

    def running(_lease: HeldLease) -> str:
        return "operation 7 is running"

    guards.append(running)
    client = staff("view_leaserow", "delete_leaserow")
    page = client.get(URL).content.decode()
    assert "operation 7 is running" in page
    assert "<form method" not in page.split("content-main")[1]
    assert "operation 7 is running" in free(client)
    lease.renew()


def test_a_server_that_is_away_is_said_on_the_page(
    staff: Callable[..., Client], settings: Settings
) -> None:
    """D4"""
    settings.LOCKS_URL = "redis://127.0.0.1:1/0"
    page = staff("view_leaserow").get(URL).content.decode()
    assert "cannot be reached" in page
    assert "No lease is held" in page
