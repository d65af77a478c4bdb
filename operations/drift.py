"""Reporting that store and outside world disagree, for people to look at."""

import hashlib

from django.db import connection

from operations.classify import MESSAGE_LIMIT, storable
from operations.outcomes import Category
from operations.redaction import redact
from operations.signature import signature

_INSERT = """
INSERT INTO operations_deadletter
    (message_id, kind, idempotency_key, attempts, category, dependency, error_type, message,
     traceback, signature, queue, state, created_at, reason, headers)
VALUES (%(message_id)s, %(kind)s, '', 0, %(category)s, %(dependency)s, %(error_type)s, %(message)s,
    '', %(signature)s, '', 'open', statement_timestamp(), '', jsonb_build_object(
        'subject', %(subject)s::text))
ON CONFLICT (message_id) WHERE message_id <> '' DO NOTHING
"""


def report(kind: str, drift: str, subject: str, message: str, *, dependency: str = "") -> bool:
    """Make a dead letter of it, unless the same was reported before.

    :param kind: of the operations concerned
    :param drift: names what disagrees, e.g. ``DoneButRefunded``
    :param subject: whose state disagrees, e.g. an operation's id; reported once for each drift
    :returns: whether it is news
    """
    digest = hashlib.sha256(f"{kind}\n{drift}\n{subject}".encode()).hexdigest()[:40]
    text = storable(redact(message))[:MESSAGE_LIMIT]
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            {
                "message_id": f"drift:{digest}",
                "kind": kind,
                "category": Category.DRIFT,
                "dependency": dependency,
                "error_type": drift,
                "message": text,
                "signature": signature(Category.DRIFT, drift, text, kind),
                "subject": subject,
            },
        )
        return bool(cursor.rowcount)
