"""``manage.py demo``."""

import io
import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from inventory import stock
from inventory.models import Product
from operations import tokens
from operations.models import ApiToken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Settings) -> None:
    """Hashing as in production would outlast the idle limit of the test's transaction."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def demo(file: Path | None = None) -> dict[str, str]:
    output = io.StringIO()
    arguments = [] if file is None else ["--tokens-file", str(file)]
    call_command("demo", *arguments, stdout=output)
    shown: dict[str, str] = json.loads(output.getvalue())
    return shown


def owner_of(token: str) -> str:
    found = tokens.find(token)
    assert found is not None
    return str(found.user.get_username())


def test_it_makes_users_tokens_products_and_an_admin(tmp_path: Path) -> None:
    """H6: what it prints is what it keeps, for nobody else to read."""
    file = tmp_path / "demo.json"

    shown = demo(file)

    assert owner_of(shown["USER_TOKEN"]) == owner_of(shown["USER_TOKEN_2"]) == "demo"
    assert shown["USER_TOKEN"] != shown["USER_TOKEN_2"]
    assert owner_of(shown["OTHER_TOKEN"]) == "other"
    admin = User.objects.get(username=shown["ADMIN_USER"])
    assert admin.is_superuser
    assert admin.check_password(shown["ADMIN_PASSWORD"])
    assert json.loads(file.read_text()) == shown
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(Product.objects.values_list("sku", "available")) == [
        ("sku-1", 1_000_000),
        ("sku-scarce", 10),
    ]


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    """H6: neither tokens nor stock nor the password."""
    file = tmp_path / "demo.json"
    shown = demo(file)
    held = stock.reserve("sku-scarce", 3, epoch=1)
    assert held is not None
    stock.confirm(held.product_id, 2, epoch=1)

    assert demo(file) == shown
    assert ApiToken.objects.count() == 3
    scarce = Product.objects.get(sku="sku-scarce")
    assert (scarce.available, scarce.reserved) == (8, 1)


def test_only_what_is_not_valid_any_more_is_made_anew(tmp_path: Path) -> None:
    """H6: revoked, about to expire, or from another database."""
    file = tmp_path / "demo.json"
    shown = demo(file)
    revoked, expiring = tokens.find(shown["USER_TOKEN"]), tokens.find(shown["OTHER_TOKEN"])
    assert revoked is not None
    assert expiring is not None
    tokens.revoke(revoked.pk)
    expiring.expires_at = timezone.now() + timedelta(hours=1)
    expiring.save()
    User.objects.filter(username=shown["ADMIN_USER"]).delete()

    again = demo(file)

    assert {name for name in shown if shown[name] != again[name]} == {
        "USER_TOKEN",
        "OTHER_TOKEN",
        "ADMIN_PASSWORD",
    }
    assert owner_of(again["USER_TOKEN"]) == "demo"
    assert json.loads(file.read_text()) == again


def test_without_a_file_the_tokens_are_new() -> None:
    """H6."""
    assert demo()["USER_TOKEN"] != demo()["USER_TOKEN"]


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    """H6."""
    file = tmp_path / "demo.json"
    file.write_text("[]")

    with pytest.raises(CommandError, match="JSON object"):
        demo(file)

    assert file.read_text() == "[]"
