"""The log of what people decided. It only grows."""

from dataclasses import dataclass
from typing import Any

from operations.models import AuditEntry


@dataclass(frozen=True)
class Author:
    """Who decided: a user, or somebody at the command line.

    :param user: primary key
    """

    name: str
    user: int | None = None


def record(
    author: Author,
    action: str,
    subject: str,
    *,
    reason: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Write a decision down, in the transaction that carries it out.

    :raises ValueError: there is no reason
    """
    if not reason.strip():
        raise ValueError("A decision needs a reason.")
    AuditEntry.objects.create(
        author_id=author.user,
        author_name=author.name[:200],
        action=action,
        subject=subject,
        before=before,
        after=after,
        reason=reason.strip(),
    )
