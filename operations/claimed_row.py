"""What the claiming statement tells about an operation: all that an attempt needs."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClaimedRow:
    """The row as the claiming statement returned it."""

    id: uuid.UUID
    owner_id: int | None
    kind: str
    payload: dict[str, Any]
    payload_revision: int
    resource: str
    epoch: int
    prior_epoch: int | None
    attempts: int
    losses: int
    bugs: int
    effects_began: bool
    deferred_since: datetime | None
    precondition: dict[str, Any] | None
    request_id: str
    traceparent: str
    idempotency_key: str | None
    queued_at: datetime | None
    started_at: datetime
    prior_started_at: datetime | None
    created_at: datetime
    claimed_by: str
