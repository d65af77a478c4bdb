"""What an attempt costs the database, whatever waits besides."""

import json
import uuid
from typing import Any

import pytest
from django.db import connection

from operations import verbs
from tests.lab.accepting import accept, owner

#: Rows that wait; a claim must not read them.
BACKLOG = 5_000
#: Pages of 8 KiB that a claim may touch.
PAGES = 80

_INSERT = """
INSERT INTO operations_operation
    (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
     due_at, sent_at, effects_began, attempts, losses, bugs, deferrals, request_id,
     traceparent, created_at, version)
SELECT gen_random_uuid(), %s, 'scripted.local', '{}', 1, %s, 'pending', '', now(), now(),
    now(), false, 0, 0, 0, 0, '', '', now(), 1
FROM generate_series(1, %s)
"""


def pages_of_a_claim(id: uuid.UUID, *, fifo: bool) -> int:
    parameters: dict[str, Any] = {
        "id": id,
        "kind": "scripted.local",
        "claimed_by": "n/1.1#x",
        "ttl": 30,
        "fifo": fifo,
        "sent_at": None,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {verbs._CLAIM}", parameters)
        ((plan,),) = cursor.fetchall()
    found = json.loads(plan) if isinstance(plan, str) else plan
    top = found[0]["Plan"]
    assert top["Plans"][0]["Actual Rows"] == 1, "nothing was claimed"
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


@pytest.mark.req("B2")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("resource", "analyzed"), [("", False), ("", True), ("young", False), ("known", True)]
)
def test_a_claim_does_not_read_the_backlog(resource: str, analyzed: bool) -> None:
    """B2: neither of rows without a resource nor of its own resource; on a young table too."""
    first = accept(publish=False, on=resource)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [owner(), resource, BACKLOG])
        if analyzed:
            cursor.execute("ANALYZE operations_operation")
    assert pages_of_a_claim(first, fifo=resource != "") < PAGES
