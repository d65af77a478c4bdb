"""Many requests at once, over two API processes."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from operations.models import ONE_OPERATION_PER_KEY, IdempotencyRecord, Operation
from tests.lab.processes import Stack
from tests.lab.services import DATABASE
from tests.operations.api.client import Client, new_client

AT_ONCE = 50


def all_at_once(
    stack: Stack, client: Client, count: int, send: Callable[[httpx.Client, int], httpx.Response]
) -> list[httpx.Response]:
    """Send from as many connections at the same instant, alternately to each API."""
    barrier = threading.Barrier(count)
    headers = {"Authorization": f"Bearer {client.token}"}

    # Without certificates, whose loading would take longer than all the rest.
    def one(number: int) -> httpx.Response:
        url = stack.api_urls[number % len(stack.api_urls)]
        with httpx.Client(base_url=url, headers=headers, timeout=60, verify=False) as http:  # noqa: S501
            http.get("/healthz")
            barrier.wait(60)
            return send(http, number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def same(key: str, http: httpx.Client, _number: int) -> httpx.Response:
    return post(http, key)


def post(http: httpx.Client, key: str, number: int = 1) -> httpx.Response:
    return http.post("/api/v1/scripted", json={"number": number}, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_fifty_identical_posts_are_one_operation(stack: Stack, isolation: str) -> None:
    """A3 A4: at each isolation level; none is refused, one is new."""
    stack.env["DATABASE_ISOLATION"] = isolation
    stack.start(apis=2, workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        for _ in range(3):
            key = secrets.token_hex(8)
            answers = all_at_once(stack, client, AT_ONCE, partial(same, key))
            assert Counter(answer.status_code for answer in answers) == {202: AT_ONCE}
            assert len({answer.json()["id"] for answer in answers}) == 1
            new = [answer for answer in answers if "Idempotent-Replayed" not in answer.headers]
            assert len(new) == 1
        assert Operation.objects.count() == IdempotencyRecord.objects.count() == 3
        assert {record.replays for record in IdempotencyRecord.objects.all()} == {AT_ONCE - 1}


@pytest.mark.parametrize(
    "isolation", ["read committed", pytest.param("serializable", marks=pytest.mark.full)]
)
def test_a_thousand_distinct_posts_are_a_thousand_operations(stack: Stack, isolation: str) -> None:
    """A3: each is accepted, none is lost in the crowd."""
    stack.env |= {"DATABASE_ISOLATION": isolation, "SEKALI_RATE_LIMIT": "100000"}
    stack.start(apis=2, workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        threads, each = 20, 50

        def send(http: httpx.Client, number: int) -> httpx.Response:
            for i in range(each):
                answer = post(http, f"{number}-{i}", number=i)
                assert answer.status_code == 202, answer.text
            return answer

        all_at_once(stack, client, threads, send)
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == threads * each
    assert IdempotencyRecord.objects.filter(replays__gt=0).count() == 0


def test_of_different_inputs_under_one_key_one_is_accepted(stack: Stack) -> None:
    """A4: the others are told which."""
    stack.start(apis=2, workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        answers = all_at_once(stack, client, 20, lambda http, n: post(http, "k", number=n))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 422: 19}
    (accepted,) = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    assert {a.json()["operation_id"] for a in answers if a.status_code == 422} == {accepted}


def test_without_the_unique_key_there_would_be_many(stack: Stack) -> None:
    """I2 A3: the negative control: nothing but the constraint decides."""
    with stack.lab.postgres.connect(f"{DATABASE}_one") as session:
        session.execute(
            f"ALTER TABLE operations_idempotencyrecord DROP CONSTRAINT {ONE_OPERATION_PER_KEY}"
        )
    stack.env["EXTRA_APPS"] += ",tests.lab.keyless"
    stack.start(apis=2, workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as client:
        answers = all_at_once(stack, client, AT_ONCE, partial(same, "k"))
    assert len({answer.json()["id"] for answer in answers}) > 1
    assert Operation.objects.count() > 1
