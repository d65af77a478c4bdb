"""Operations put in without the API, for tests of what comes after it."""

import secrets
import uuid
from datetime import timedelta
from typing import Any, Literal

from django.contrib.auth import get_user_model
from django.db import connection
from uuid_utils.compat import uuid7

from operations import payload, registry, verbs
from operations.broker import get_broker
from operations.verbs import Envelope


def owner(name: str = "tester") -> int:
    """The id of a user of that name, made if need be."""
    user, _ = get_user_model().objects.get_or_create(username=name)
    return int(user.pk)


_MANY = """
INSERT INTO operations_operation
    (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
     due_at, sent_at, finished_at, error, effects_began, attempts, losses, bugs, deferrals,
     request_id, traceparent, created_at, version)
SELECT gen_random_uuid(), %(owner)s, %(kind)s, '{}', 1, %(resource)s, %(state)s, '', now(),
    CASE WHEN %(state)s = 'pending' THEN now() END, CASE WHEN %(sent)s THEN now() END,
    CASE WHEN %(state)s = 'dead' THEN now() END,
    CASE WHEN %(state)s = 'dead' THEN '{}'::jsonb END,
    false, 0, 0, 0, 0, '', '', now(), 1
FROM generate_series(1, %(count)s)
"""


def backlog(
    count: int,
    kind: str = "scripted.local",
    *,
    user: int | None = None,
    resource: str = "",
    state: Literal["pending", "dead"] = "pending",
    sent: bool = False,
    analyze: bool = True,
) -> None:
    """Put rows in by one statement, without keys, messages or letters."""
    parameters: dict[str, Any] = {"count": count, "kind": kind, "owner": user}
    with connection.cursor() as cursor:
        cursor.execute(_MANY, {**parameters, "resource": resource, "state": state, "sent": sent})
        if analyze:
            cursor.execute("ANALYZE operations_operation")


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
