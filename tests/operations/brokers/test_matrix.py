"""Who dies, where, and on which broker; after each the effect is there once."""

import os
import signal
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from operations.broker import BrokerUnavailable
from operations.models import Attempt, DeadLetter, Operation
from operations.tokens import issue
from tests.lab.accepting import accept
from tests.lab.crash import Crash
from tests.lab.processes import Process
from tests.lab.scripted.models import Effect
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad
from tests.operations.brokers.conftest import Platform

pytestmark = [pytest.mark.req("B1", "B2", "B12", "I1"), pytest.mark.full]

CHILD = ("claim.made", "lease.acquired", "handler.returned", "settle.committed", "attempt.over")
DISPATCHER = ("dispatch.taken", "dispatch.published")
API = ("accept.stored", "accept.published")
RECORDER = ("letters.read", "letters.stored")


def ledger(ids: list[uuid.UUID], timeout: float = 40) -> None:
    """Each is done, by one attempt, with one effect; no letter is written for any."""
    wait_until(
        lambda: Operation.objects.filter(id__in=ids, state="done").count() == len(ids),
        timeout=timeout,
        message="some are not done",
    )
    effects = Effect.objects.filter(operation_id__in=ids, label="x")
    assert effects.count() == effects.values("operation_id").distinct().count() == len(ids)
    assert Attempt.objects.filter(operation_id__in=ids, outcome="done").count() == len(ids)
    assert not DeadLetter.objects.filter(operation_id__in=ids).exists()


def revive(process: Process) -> None:
    """What a supervisor would do."""
    wait_until(lambda: not process.is_running, message=f"{process.name} was to die", timeout=20)
    process.discard()
    process.start()


def drained(platform: Platform) -> None:
    wait_until(lambda: platform.ready(KIND) == 0 and platform.ready("dead_letter") == 0)


def test_worker_children_and_mains(platform: Platform) -> None:
    """A child alone, and the whole worker with it."""
    crash = Crash(platform.stack)
    platform.stack.start(apis=0, sandbox=False, workers=0)
    worker = platform.stack.add_worker(concurrency=4)
    ids = []
    for point in CHILD:
        crash.arm(point)
        ids.append(accept(KIND, on=f"c-{point}", label="x"))
        crash.wait(point)
        ledger(ids)
    for point in ("message.taken", *CHILD):
        crash.arm(point, "kill" if point == "message.taken" else "kill-parent")
        ids.append(accept(KIND, on=f"m-{point}", label="x"))
        crash.wait(point)
        revive(worker)
        ledger(ids)
    drained(platform)


def test_dispatchers_and_recorders(platform: Platform) -> None:
    """They are one process, with two tasks."""
    crash = Crash(platform.stack)
    platform.stack.start(apis=0, sandbox=False)
    dispatcher = platform.stack.dispatchers[0]
    ids = []
    for point in DISPATCHER:
        crash.arm(point)
        ids.append(accept(KIND, publish=False, label="x"))
        crash.wait(point)
        revive(dispatcher)
        ledger(ids)
    for n, point in enumerate(RECORDER):
        crash.arm(point)
        platform.send(Bad("garbage", "NoTask", b"%d" % n))
        crash.wait(point)
        revive(dispatcher)
        wait_until(lambda n=n: DeadLetter.objects.count() == n + 1, timeout=20)  # type: ignore[misc]
    crash.arm("lease.acquired", "kill-parent")
    ids.append(accept(KIND, on="r", label="x"))
    crash.wait("lease.acquired")
    crash.arm("rescue.committed")
    crash.wait("rescue.committed")
    revive(dispatcher)
    revive(platform.stack.workers[0])
    ledger(ids)
    drained(platform)


def test_an_api(platform: Platform) -> None:
    """Before its message is sent, and before its answer is: the client asks again."""
    crash = Crash(platform.stack)
    platform.stack.start(sandbox=False)
    user = get_user_model().objects.create(username="matrix")
    token = issue(user, "matrix", timedelta(hours=1))
    ids = []
    for point in API:
        crash.arm(point)
        send = _client(platform, token, key=point)
        with pytest.raises(httpx.HTTPError):
            send()
        crash.wait(point)
        revive(platform.stack.apis[0])
        answer = send()
        assert answer.status_code in (200, 202)
        assert answer.headers["Idempotent-Replayed"] == "true"
        ids.append(uuid.UUID(answer.json()["id"]))
        ledger(ids)


def _client(platform: Platform, token: str, key: str) -> Callable[[], httpx.Response]:
    def send() -> httpx.Response:
        return httpx.post(
            f"{platform.stack.api_url}/api/v1/scripted",
            json={"label": "x"},
            headers={"Authorization": f"Bearer {token}", "Idempotency-Key": key},
            timeout=20,
        )

    return send


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["broker", "database"])
def test_servers(platform: Platform, victim: str) -> None:
    """Killed and started again while somebody stands at a point."""
    server = platform.server if victim == "broker" else platform.stack.lab.postgres
    crash = Crash(platform.stack)
    platform.stack.start(apis=0, sandbox=False)
    ids = []
    # RabbitMQ needs its time to come back: it is killed at every other point.
    step = 2 if victim == "broker" and not platform.is_redis else 1
    for point in ("message.taken", *CHILD, *DISPATCHER)[::step]:
        crash.arm(point, "stop")
        ids.append(accept(KIND, publish=point not in DISPATCHER, on=point, label="x"))
        stopped = crash.wait(point)
        server.kill()
        server.start()
        connection.close()
        os.kill(stopped, signal.SIGCONT)
        ledger(ids)
    assert platform.stack.workers[0].is_running
    wait_until(lambda: _ready(platform) == 0, timeout=30)


def _ready(platform: Platform) -> int:
    try:
        return platform.ready(KIND)
    except BrokerUnavailable:
        time.sleep(0.1)
        return -1
