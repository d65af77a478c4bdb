"""Reporting that store and outside world disagree, for people to look at."""

import hashlib

from django.db import connection, transaction

from operations.classify import MESSAGE_LIMIT, storable
from operations.outcomes import Category
from operations.redaction import redact
from operations.signature import signature

#: Kinds of operation that look at the drifts of a kind again.
_looking_again: dict[str, str] = {}

# What was discarded is known, and told again only when it reads otherwise.
_REOPEN = """
UPDATE operations_deadletter SET message_id = message_id || ':' || id
WHERE message_id = %(message_id)s AND state = 'discarded' AND message <> %(message)s
"""
_INSERT = """
INSERT INTO operations_deadletter AS known
    (message_id, kind, idempotency_key, attempts, category, dependency, error_type, message,
     traceback, signature, queue, state, created_at, reason, headers)
VALUES (%(message_id)s, %(kind)s, '', 0, %(category)s, %(dependency)s, %(error_type)s, %(message)s,
    '', %(signature)s, '', 'open', statement_timestamp(), '', jsonb_build_object(
        'subject', %(subject)s::text))
ON CONFLICT (message_id) WHERE message_id <> '' DO UPDATE SET message = excluded.message
WHERE known.state = 'open' AND known.message <> excluded.message
RETURNING xmax = 0 AS is_news
"""


def report(kind: str, drift: str, subject: str, message: str, *, dependency: str = "") -> bool:
    """Make a dead letter of it, unless there is one.

    There is one letter a drift: while it is open its message follows what is seen. One that
    was discarded stays so while the message is the same; one that was replayed is over.

    :param kind: of the operations concerned
    :param drift: names what disagrees, e.g. ``DoneButRefunded``
    :param subject: whose state disagrees, e.g. an operation's id
    :param message: the same words as long as the same is seen
    :returns: whether it is news
    """
    digest = hashlib.sha256(f"{kind}\n{drift}\n{subject}".encode()).hexdigest()[:40]
    text = storable(redact(message))[:MESSAGE_LIMIT]
    parameters = {
        "message_id": f"drift:{digest}",
        "kind": kind,
        "category": Category.DRIFT,
        "dependency": dependency,
        "error_type": drift,
        "message": text,
        "signature": signature(Category.DRIFT, drift, text, kind),
        "subject": subject,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_REOPEN, parameters)
        cursor.execute(_INSERT, parameters)
        row = cursor.fetchone()
        return row is not None and bool(row[0])


def looked_at_again_by(kind: str, again: str) -> None:
    """Drifts of operations of a kind are looked at again by operations of another, whose
    payload is ``drift`` and ``subject``, as they were reported."""
    _looking_again[kind] = again


def kind_to_look_again(kind: str) -> str | None:
    """See :func:`looked_at_again_by`. None: nobody can."""
    return _looking_again.get(kind)
