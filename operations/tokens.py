"""Making, finding and revoking the bearer tokens of clients."""

import re
import secrets
from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db.models.functions import Now
from django.utils import timezone

from operations.models import ApiToken
from operations.models.token import digest

PREFIX = "sk_"
_RANDOM_BYTES = 32
_FORM = re.compile(r"sk_[A-Za-z0-9_-]{20,200}", re.ASCII)


def issue(user: AbstractBaseUser, name: str, lifetime: timedelta) -> str:
    """Make a token for a user and return it. It cannot be read again afterwards.

    :param name: what it is for, for the people who look through the list
    :raises ValueError: the lifetime is not above zero
    """
    if lifetime <= timedelta(0):
        raise ValueError("A token needs a lifetime above zero.")
    token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    now = timezone.now()
    ApiToken.objects.create(
        user_id=user.pk,
        name=name[:100],
        digest=digest(token),
        created_at=now,
        expires_at=now + lifetime,
    )
    return token


def find(token: str) -> ApiToken | None:
    """The valid token of an active user, with that user, in one statement; else None."""
    if not _FORM.fullmatch(token):
        return None
    return (
        ApiToken.objects.select_related("user")
        .filter(
            digest=digest(token),
            revoked_at__isnull=True,
            expires_at__gt=Now(),
            user__is_active=True,
        )
        .order_by()
        .first()
    )


def revoke(id: int) -> bool:
    """Make a token worthless from now on. False: no such token, or revoked before."""
    return ApiToken.objects.filter(pk=id, revoked_at__isnull=True).update(revoked_at=Now()) == 1
