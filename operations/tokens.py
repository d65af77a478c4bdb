"""Making, finding and revoking the bearer tokens of clients."""

import re
import secrets
from datetime import timedelta
from functools import cache

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import connection, models
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
    with connection.cursor() as cursor:
        cursor.execute(_find_statement(), [digest(token)])
        row = cursor.fetchone()
    if row is None:
        return None
    names = _names(ApiToken)
    found = ApiToken.from_db(connection.alias, names, row[: len(names)])
    user = get_user_model()
    found.user = user.from_db(connection.alias, _names(user), row[len(names) :])
    return found


@cache
def _find_statement() -> str:
    # Written out, since every request asks this, and composing it by the ORM takes longer
    # than all the rest of a status request.
    user = get_user_model()
    columns = [*_columns(ApiToken, "t"), *_columns(user, "u")]
    return (
        f"SELECT {', '.join(columns)} FROM {ApiToken._meta.db_table} AS t "  # noqa: S608
        f"JOIN {user._meta.db_table} AS u ON u.{user._meta.pk.column} = t.user_id "
        "WHERE t.digest = %s AND t.revoked_at IS NULL "
        "AND t.expires_at > statement_timestamp() AND u.is_active"
    )


def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _columns(model: type[models.Model], alias: str) -> list[str]:
    return [
        f"{alias}.{connection.ops.quote_name(str(field.column))}"
        for field in model._meta.concrete_fields
    ]


def revoke(id: int) -> bool:
    """Make a token worthless from now on. False: no such token, or revoked before."""
    return ApiToken.objects.filter(pk=id, revoked_at__isnull=True).update(revoked_at=Now()) == 1
