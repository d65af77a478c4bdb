"""A deploy of everything that is not a worker: APIs and beats that come and go under load."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count, cycle

import httpx
import pytest
from django.contrib.auth import get_user_model

from deploy.local import parts
from operations.models import DeadLetter, Operation
from operations.tokens import issue
from tests.lab.processes import Process, Stack
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B2", "I1")


def new_token() -> str:
    user = get_user_model().objects.create(username="buyer")
    return issue(user, "test", timedelta(hours=1))


class Buyers:
    """Clients that send one request after another, and again, elsewhere, when a connection
    fails, until it is answered."""

    def __init__(self, stack: Stack) -> None:
        self._urls = stack.api_urls
        self._token = new_token()
        self._over = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.ids: set[str] = set()
        self.answered = 0

    @contextmanager
    def sending(self, buyers: int) -> Iterator[None]:
        threads = [threading.Thread(target=self._buy, args=(n,)) for n in range(buyers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _buy(self, buyer: int) -> None:
        urls = cycle(self._urls)
        with httpx.Client(timeout=20, trust_env=False) as client:
            for number in count():
                while not self._over.is_set():
                    try:
                        answer = client.post(
                            f"{next(urls)}/api/v1/scripted",
                            json={},
                            headers={
                                "Authorization": f"Bearer {self._token}",
                                "Idempotency-Key": f"{buyer}-{number}",
                            },
                        )
                    except httpx.TransportError:
                        continue  # refused, or cut before the answer: again
                    self.statuses[answer.status_code] += 1
                    self.ids.add(answer.json().get("id"))
                    self.answered += 1
                    break
                else:
                    return


def leave(process: Process, *, killed: bool = False) -> None:
    """Asked to end, as a deploy does, or killed when its grace is over; and started again."""
    if killed:
        process.kill()
    else:
        process.terminate()
    process.start()


@pytest.mark.full
def test_apis_and_beats_leave_under_load(stack: Stack) -> None:
    """B2 I1: nothing lost, nothing doubled, no 5xx; two beats start all housekeeping twice."""
    stack.env |= {
        "SEKALI_PRUNE_INTERVAL": "0.5",
        "CACHE_AUDIT_INTERVAL": "0.5",
        "SEKALI_RATE_LIMIT": "100000",
    }
    stack.start(apis=2, workers=1, beat=True, sandbox=False)
    second = replace(parts.beat(stack.env, stack.directory / "beat-2"), name="beat-2")
    assert stack.beat is not None
    beats = [stack.beat, stack.process(second).start()]
    buyers = Buyers(stack)
    try:
        with buyers.sending(3):
            for round, killed in enumerate([False, True]):
                for process in (stack.apis[round], beats[round]):
                    leave(process, killed=killed)
                had = buyers.answered
                wait_until(lambda had=had: buyers.answered > had + 20, timeout=20)  # type: ignore[misc]
    finally:
        beats[1].discard()
    assert set(buyers.statuses) <= {200, 202}, buyers.statuses
    done = Operation.objects.filter(id__in=buyers.ids, state="done")
    wait_until(lambda: done.count() == len(buyers.ids), timeout=60, message="some are lost")
    assert Effect.objects.count() == Operation.objects.filter(kind="scripted.local").count()
    assert not DeadLetter.objects.exists()
    runs = stack.workers[0].output().count("Task operations.prune[")
    assert runs > 2, "the beats did nothing"


def test_an_api_that_leaves_answers_what_it_has_taken(stack: Stack) -> None:
    """B2: a request that has come in whole is answered before the process ends."""
    stack.start(apis=1, workers=0, dispatchers=0, sandbox=False)
    token = new_token()
    answers: list[int] = []

    def ask() -> None:
        answer = httpx.post(
            f"{stack.api_url}/api/v1/scripted",
            json={},
            headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "k"},
            timeout=20,
            trust_env=False,
        )
        answers.append(answer.status_code)

    stack.lab.postgres.stop()
    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)  # by then it waits for the database, which nothing shows
    leaving = threading.Thread(target=stack.apis[0].terminate)
    leaving.start()
    time.sleep(0.5)
    stack.lab.postgres.cont()
    thread.join()
    leaving.join()
    assert answers == [202]
