"""What an attempt costs the database, whatever waits besides."""

import json
import secrets
import uuid
from typing import Any

import pytest
from django.db import connection

from operations import registry, verbs
from tests.lab.accepting import accept, backlog, owner

#: Rows that wait, or are dead; a claim must not read them.
BACKLOG = 5_000
#: Pages of 8 KiB that a claim may touch.
PAGES = 80


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
    backlog(BACKLOG, user=owner(), resource=resource, sent=True, analyze=analyzed)
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
        backlog(BACKLOG, user=owner(), resource=resource, state="dead", analyze=analyzed)
    id = accept(kind, publish=False, on=resource)
    if not before:
        backlog(BACKLOG, user=owner(), resource=resource, state="dead", analyze=analyzed)
    assert pages_of_a_claim(id, kind, claimed=claimed) < PAGES
