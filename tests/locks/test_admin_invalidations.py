"""The page of invalidations that wait, in Django admin."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from locks.cache import records
from locks.models import InvalidationRecord

URL = "/admin/locks/invalidationrecord/"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def staff() -> Callable[..., Client]:
    """Logs somebody in who may do what is named."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create(username="-".join(permissions) or "nobody", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return log_in


def recorded(key: str, seconds: float) -> InvalidationRecord:
    """A record that waits for so long already."""
    records.record([key])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE locks_invalidation SET recorded_at = now() - %s * interval '1 second'"
            " WHERE key = %s",
            [seconds, key],
        )
    return InvalidationRecord.objects.get(key=key)


def test_it_lists_what_waits_with_its_age_the_oldest_first(staff: Callable[..., Client]) -> None:
    """E4 H6"""
    recorded("product@1:new", 1)
    recorded("inventory@1:<b>", 5)
    client = staff("view_invalidationrecord")
    page = client.get(URL).content.decode()
    assert page.index("inventory@1:&lt;b&gt;") < page.index("product@1:new")
    ages = [float(age) for age in re.findall(r">([0-9.]+) s</td>", page)]
    assert ages[0] >= 5
    assert 1 <= ages[1] < ages[0]
    assert "product@1:new" not in client.get(f"{URL}?q=inventory").content.decode()


def test_it_warns_of_a_record_that_waits_too_long(staff: Callable[..., Client]) -> None:
    """E4 H6: the gauge that tells of a cache, or of dispatchers, that are away."""
    client = staff("view_invalidationrecord")
    assert "The oldest waits" not in client.get(URL).content.decode()
    recorded("product@1:old", 100)
    page = client.get(URL).content.decode()
    assert "The oldest waits for 10" in page


def test_it_is_for_those_who_may_see_it_and_for_looking_only(staff: Callable[..., Client]) -> None:
    """E4 H6"""
    record = recorded("product@1:a", 1)
    everything = [f"{verb}_invalidationrecord" for verb in ("view", "add", "change", "delete")]
    assert staff().get(URL).status_code == 403
    client = staff(*everything)
    assert client.get(f"{URL}add/").status_code == 403
    form = {"action": "delete_selected", "_selected_action": record.pk, "post": "yes"}
    client.post(URL, form)
    client.post(f"{URL}{record.pk}/delete/", {"post": "yes"})
    client.post(f"{URL}{record.pk}/change/", {"key": "b"})
    assert InvalidationRecord.objects.get().key == "product@1:a"
