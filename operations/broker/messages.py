"""The message of an operation, in the words of Celery's protocol.

It is made by Celery once for each kind, with a placeholder for the id; the message of one
operation is then a replacement of text. A refill of a wiped broker sends tens of
thousands, and Celery needs a third of a millisecond for one.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from celery import current_app

from operations import registry

#: Stands for the id while the template is made.
_PLACEHOLDER = "00000000-0000-0000-0000-000000000000"

#: The header that says when the message was sent, by the clock of the database.
SENT_AT = "sent_at"
#: Stands for it while the template is made, and where it is not known. Always of this length.
_NEVER = "0000-00-00T00:00:00.000000+00:00"


@dataclass(frozen=True)
class Template:
    """The messages of a kind: headers and body as JSON, with a placeholder for the id."""

    queue: str
    headers: str
    body: str
    placeholder: str = _PLACEHOLDER
    never: str = _NEVER

    def headers_of(self, id: str, request_id: str) -> dict[str, Any]:
        headers: dict[str, Any] = json.loads(self.headers.replace(self.placeholder, id))
        headers["request_id"] = request_id
        headers[SENT_AT] = self.never
        return headers

    def body_of(self, id: str) -> bytes:
        return self.body.replace(self.placeholder, id).encode()


def as_header(sent_at: datetime | None) -> str:
    """The time in the one form in which messages hold it."""
    if sent_at is None:
        return _NEVER
    return sent_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")


def sent_at_of(header: object) -> datetime | None:
    """The time that a message holds, if it holds one."""
    try:
        # In UTC, since PostgreSQL cannot tell every time of every zone.
        return datetime.fromisoformat(str(header)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@cache
def template(kind: str) -> Template:
    """
    :raises UnknownKind: this process does not know the kind, and so not its queue
    """
    queue = registry.get(kind).queue
    made = current_app.amqp.as_task_v2(
        _PLACEHOLDER, kind, args=[_PLACEHOLDER], kwargs={}, ignore_result=True
    )
    return Template(
        queue=queue,
        headers=json.dumps(made.headers),
        body=json.dumps(made.body),
    )
