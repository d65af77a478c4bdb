"""What an attempt costs the database, whatever waits besides."""

import json
import secrets
import uuid
from typing import Any

import pytest
from django.db import connection

from operations import registry, verbs
from tests.lab.accepting import accept, owner

#: Rows that wait, or are dead; a claim must not read them.
BACKLOG = 5_000
#: Pages of 8 KiB that a claim may touch.
PAGES = 80

_PENDING = """
INSERT INTO operations_operation
    (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
     due_at, sent_at, effects_began, attempts, losses, bugs, deferrals, request_id,
     traceparent, created_at, version)
SELECT gen_random_uuid(), %s, 'scripted.local', '{}', 1, %s, 'pending', '', now(), now(),
    now(), false, 0, 0, 0, 0, '', '', now(), 1
FROM generate_series(1, %s)
"""
_DEAD = """
INSERT INTO operations_operation
    (id, owner_id, kind, payload, payload_revision, resource, state, claimed_by, not_before,
     finished_at, error, effects_began, attempts, losses, bugs, deferrals, request_id,
     traceparent, created_at, version)
SELECT gen_random_uuid(), %s, 'scripted.local', '{}', 1, %s, 'dead', '', now(),
    now(), '{}', false, 0, 0, 0, 0, '', '', now(), 1
FROM generate_series(1, %s)
"""


def insert(sql: str, resource: str, *, analyze: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, [owner(), resource, BACKLOG])
        if analyze:
            cursor.execute("ANALYZE operations_operation")


def pages_of_a_claim(id: uuid.UUID, kind: str = "scripted.local", *, claimed: bool = True) -> int:
    parameters: dict[str, Any] = {
        "id": id,
        "kind": kind,
        "claimed_by": "n/1.1#x",
        "ttl": 30,
        "fifo": registry.get(kind).fifo,
        "waiting": registry.waiting(),
        "sent_at": None,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {verbs._CLAIM}", parameters)
        ((plan,),) = cursor.fetchall()
    found = json.loads(plan) if isinstance(plan, str) else plan
    top = found[0]["Plan"]
    assert (top["Actual Rows"] == 1) == claimed, "claimed, or not, as it should not be"
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


@pytest.mark.req("B2")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "resource", "analyzed"),
    [
        ("scripted.local", "", False),
        ("scripted.local", "", True),
        ("scripted.fifo", "young", False),
        ("scripted.fifo", "known", True),
        ("scripted.strict", "strict", True),
    ],
)
def test_a_claim_does_not_read_the_backlog(kind: str, resource: str, analyzed: bool) -> None:
    """B2: neither of rows without a resource nor of its own resource; on a young table too."""
    first = accept(kind, publish=False, on=resource)
    insert(_PENDING, resource, analyze=analyzed)
    assert pages_of_a_claim(first, kind) < PAGES


@pytest.mark.req("B2")
@pytest.mark.django_db
@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize(
    ("kind", "before", "claimed"),
    [
        ("scripted.local", True, True),
        ("scripted.fifo", True, True),
        ("scripted.strict", True, False),
        ("scripted.strict", False, True),
    ],
)
def test_a_claim_does_not_read_who_is_dead(
    kind: str, before: bool, claimed: bool, analyzed: bool
) -> None:
    """B2 B10: however many are dead on its resource, before it or behind it."""
    resource = secrets.token_hex(4)  # what another test rolled back still stands in the index
    if before:
        insert(_DEAD, resource, analyze=analyzed)
    id = accept(kind, publish=False, on=resource)
    if not before:
        insert(_DEAD, resource, analyze=analyzed)
    assert pages_of_a_claim(id, kind, claimed=claimed) < PAGES
