"""``manage.py demo``: users, tokens and products to try everything with."""

import json
import os
import secrets
from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from inventory.caches import PRODUCT, PRODUCT_PAGE
from inventory.models import Product
from locks.cache import invalidate
from operations import tokens

LIFETIME = timedelta(days=90)
#: A token with less than this left is replaced.
LEAST_LEFT = timedelta(days=1)

CLIENTS = {"USER_TOKEN": "demo", "USER_TOKEN_2": "demo", "OTHER_TOKEN": "other"}
ADMIN = "demo-admin"
PRODUCTS = (
    Product(sku="sku-1", name="Plenty", price_minor=1250, currency="eur", available=1_000_000),
    Product(sku="sku-scarce", name="Scarce", price_minor=9900, currency="eur", available=10),
)


class Command(BaseCommand):
    help = (
        "Makes what is missing of the demo data and prints, as JSON, tokens and the admin's "
        "password. Not for production: whoever reads the output is an admin."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--tokens-file",
            type=Path,
            help="keeps what is printed, and is read first: what is still valid stays",
        )

    def handle(self, *_: object, tokens_file: Path | None, **__: object) -> None:
        kept = {} if tokens_file is None else _read(tokens_file)
        with transaction.atomic():
            Product.objects.bulk_create(PRODUCTS, ignore_conflicts=True)
            invalidate(
                PRODUCT_PAGE.every_key(), *(PRODUCT.key(sku=product.sku) for product in PRODUCTS)
            )
        shown = {name: _token(name, user, kept) for name, user in CLIENTS.items()}
        shown |= {"ADMIN_USER": ADMIN, "ADMIN_PASSWORD": _admin_password(kept)}
        if tokens_file is not None and shown != kept:
            _write(tokens_file, shown)
        self.stdout.write(json.dumps(shown, indent=2))


def _token(name: str, username: str, kept: dict[str, Any]) -> str:
    user, _ = User.objects.get_or_create(username=username)
    token = str(kept.get(name, ""))
    found = tokens.find(token)
    if (
        found is not None
        and found.user_id == user.pk
        and found.expires_at - timezone.now() > LEAST_LEFT
    ):
        return token
    return tokens.issue(user, f"demo: {name}", LIFETIME)


def _admin_password(kept: dict[str, Any]) -> str:
    admin, _ = User.objects.get_or_create(username=ADMIN)
    password = str(kept.get("ADMIN_PASSWORD", ""))
    if not (admin.is_active and admin.is_superuser and admin.check_password(password)):
        password = secrets.token_urlsafe(16)
        admin.is_active = admin.is_staff = admin.is_superuser = True
        admin.set_password(password)
        admin.save()
    return password


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CommandError(f"{file} does not hold a JSON object.")
    return content


def _write(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, and for this user's eyes only."""
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(content, stream, indent=2)
    new.replace(file)
