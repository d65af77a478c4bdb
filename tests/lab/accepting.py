"""Operations put in without the API, for tests of what comes after it."""

import secrets
import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from uuid_utils.compat import uuid7

from operations import payload, registry, verbs
from operations.broker import get_broker
from operations.verbs import Envelope


def owner(name: str = "tester") -> int:
    """The id of a user of that name, made if need be."""
    user, _ = get_user_model().objects.get_or_create(username=name)
    return int(user.pk)


def accept(
    kind_name: str = "scripted.local",
    *,
    publish: bool = True,
    user: int | None = None,
    key: str = "",
    precondition: dict[str, Any] | None = None,
    **data: Any,
) -> uuid.UUID:
    """Accept one operation and, with ``publish``, send its message."""
    kind = registry.get(kind_name)
    serializer = kind.serializer(data=data)
    serializer.is_valid(raise_exception=True)
    stored = payload.canonical(serializer)
    id = uuid7()
    by = owner() if user is None else user
    accepted = verbs.accept(
        id=id,
        owner=by,
        kind=kind.name,
        key=key or secrets.token_hex(8),
        fingerprint=payload.fingerprint(kind, stored),
        fingerprint_version=payload.FINGERPRINT_VERSION,
        payload=stored,
        payload_revision=kind.payload_revision,
        resource=kind.resource_of(id=id, owner=by, payload=stored),
        precondition=precondition,
        retention=timedelta(hours=1),
        send=publish,
        request_id="test",
    )
    assert accepted is not None
    if publish:
        get_broker().publish([Envelope(id, kind.name, accepted["created_at"])])
    return id
