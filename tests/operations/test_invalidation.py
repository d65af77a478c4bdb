"""Operations that change what is cached."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from rest_framework import serializers

from locks.cache import Overloaded, records
from locks.models import InvalidationRecord
from operations import operation
from operations.executor import Outcome, execute
from operations.models import Operation
from tests.lab.accepting import accept, owner
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.proxy import Proxy
from tests.lab.scripted.caches import COUNTER
from tests.lab.scripted.models import Counter
from tests.lab.scripted.operations import Script
from tests.lab.services import Lab, ValkeyServer
from tests.lab.waiting import wait_until
from tests.locks.cache.shelf import make_due
from tests.operations.api.client import new_client
from tests.operations.test_budget import observer, run, statements

__all__ = ["observer"]


@pytest.fixture
def counter(
    database: str, cache_server: ValkeyServer, locks: ValkeyServer, broker: ValkeyServer
) -> None:
    """A counter at 1, cached."""
    Counter.objects.create(name="a", value=1)
    assert COUNTER.get(name="a") == 1


def attempt(kind: str, *script: str, extra: str | None = None) -> Outcome:
    """One attempt in this process."""
    id = accept(kind, publish=False, script=list(script) or ["ok"], label="a", extra=extra)
    return execute(id, kind, process="test:1")


def test_what_a_kind_declares_is_invalidated_when_it_is_done(counter: None) -> None:
    """E2 E4: and recorded."""
    assert attempt("scripted.cached") is Outcome.DONE
    assert [record.key for record in InvalidationRecord.objects.all()] == [COUNTER.key(name="a")]
    assert COUNTER.get(name="a") == 2


def test_a_handler_can_invalidate_more(counter: None) -> None:
    """E2 E4: what it knows only when it runs; each key is recorded once."""
    Counter.objects.create(name="b", value=7)
    assert COUNTER.get(name="b") == 7
    Counter.objects.filter(name="b").update(value=8)
    assert attempt("scripted.cached", extra="b") is Outcome.DONE
    assert COUNTER.get(name="b") == 8
    assert attempt("scripted.cached", extra="a") is Outcome.DONE
    keys = list(InvalidationRecord.objects.values_list("key", flat=True))
    assert sorted(keys) == sorted([COUNTER.key(name=name) for name in "aba"])


@pytest.mark.parametrize("step", ["refuse", "dependency", "bug", "later", "payload"])
def test_an_attempt_without_effect_invalidates_nothing(counter: None, step: str) -> None:
    """E2"""
    attempt("scripted.cached", step)
    assert not InvalidationRecord.objects.exists()


def test_every_fenced_transaction_invalidates(counter: None) -> None:
    """E2: the first is committed although what follows it fails."""
    attempt("scripted.cached-split", "dependency")
    assert InvalidationRecord.objects.count() == 1
    assert COUNTER.get(name="a") == 2
    attempt("scripted.cached-split")
    assert InvalidationRecord.objects.count() == 3
    assert COUNTER.get(name="a") == 4


def test_a_savepoint_that_is_rolled_back_in_a_handler_invalidates_nothing(counter: None) -> None:
    """E2"""

    @operation("scripted.savepoint", serializer=Script)
    def handler(*_: object) -> None:
        COUNTER.invalidate(name="kept")
        try:
            with transaction.atomic():
                COUNTER.invalidate(name="undone")
                raise LookupError
        except LookupError:
            pass

    assert attempt("scripted.savepoint") is Outcome.DONE
    keys = list(InvalidationRecord.objects.values_list("key", flat=True))
    assert keys == [COUNTER.key(name="kept")]


def test_what_a_hook_of_the_commit_invalidates_is_not_lost(counter: None) -> None:
    """E2 E4: it is recorded by itself, for the fence has passed."""

    @operation("scripted.hooked", serializer=Script)
    def handler(*_: object) -> None:
        Counter.objects.update(value=5)
        transaction.on_commit(lambda: COUNTER.invalidate(name="a"))

    assert attempt("scripted.hooked") is Outcome.DONE
    assert COUNTER.get(name="a") == 5
    assert [record.key for record in InvalidationRecord.objects.all()] == [COUNTER.key(name="a")]


def test_a_hook_that_fails_does_not_lose_what_was_invalidated(counter: None) -> None:
    """E4: nor does it undo what is done."""

    @operation("scripted.failing-hook", serializer=Script)
    def handler(*_: object) -> None:
        transaction.on_commit(lambda: 1 / 0)
        Counter.objects.update(value=5)
        COUNTER.invalidate(name="a")

    attempt("scripted.failing-hook")
    assert Operation.objects.get().state == "done"
    make_due()
    records.apply_due()
    assert COUNTER.get(name="a") == 5


def test_a_field_that_was_added_since_acceptance_has_its_default(counter: None) -> None:
    """E2 A6: in what is invalidated, as in what the handler is given."""

    class Newer(Script):
        shelf = serializers.CharField(default="a")

    @operation("scripted.newer-field", serializer=Newer, invalidates=(COUNTER.on(name="{shelf}"),))
    def handler(*_: object) -> None:
        Counter.objects.update(value=5)

    id = accept("scripted.newer-field", publish=False, script=["ok"], label="a")
    row = Operation.objects.get(pk=id)
    del row.payload["shelf"]
    row.save(update_fields=["payload"])
    assert execute(id, "scripted.newer-field", process="test:1") is Outcome.DONE
    assert COUNTER.get(name="a") == 5


def test_an_operation_that_finds_too_many_loading_is_put_off_uncounted(counter: None) -> None:
    """E7 B5: it is nobody's fault."""

    @operation("scripted.crowded", serializer=Script)
    def handler(*_: object) -> None:
        raise Overloaded("Every place for loads in this process is taken.")

    assert attempt("scripted.crowded") is Outcome.DEFERRED
    row = Operation.objects.get()
    assert (row.state, row.attempts, row.deferrals) == ("pending", 0, 1)


def test_a_lost_claim_invalidates_nothing(counter: None) -> None:
    """E2 D2: its transaction is rolled back."""

    @operation("scripted.robbed", serializer=Script)
    def handler(*_: object) -> None:
        Operation.objects.update(epoch=999_999)
        COUNTER.invalidate(name="a")

    assert attempt("scripted.robbed") is Outcome.LOST
    assert not InvalidationRecord.objects.exists()


def test_recording_costs_an_attempt_no_statement(counter: None) -> None:
    """E4: the settling statement does it, and the fence."""
    owner()
    # Of prepared statements Django's log would not show the text.
    connection.connection.prepare_threshold = None
    with CaptureQueriesContext(connection) as cached:
        attempt("scripted.cached", extra="b")
    with CaptureQueriesContext(connection) as uncached:
        attempt("scripted.local")
    assert len(cached) == len(uncached)
    with CaptureQueriesContext(connection) as split:
        attempt("scripted.cached-split")
    assert sum("locks_invalidation" in query["sql"] for query in split) == 2
    assert not [query for query in split if query["sql"].startswith("INSERT INTO locks_inv")]


def test_a_worker_records_within_its_budget(
    stack: Stack, observer: Iterator[psycopg.Connection[tuple[object, ...]]]
) -> None:
    """E4: five statements, as any other kind with one effect, counted on the wire."""
    stack.start(apis=0, workers=1, dispatchers=0, sandbox=False)
    run(stack, observer, "scripted.cached")  # type: ignore[arg-type]
    counted = statements(observer)  # type: ignore[arg-type]
    assert sum(counted.values()) == 5, list(counted)
    assert InvalidationRecord.objects.exists()


def test_a_declaration_with_an_unknown_hole_is_refused() -> None:
    """E1"""
    with pytest.raises(ImproperlyConfigured, match="'colour'"):
        operation("scripted.wrong", serializer=Script, invalidates=(COUNTER.on(name="{colour}"),))(
            lambda *_: None
        )


# --- lost between the commit and the delete ----------------------------------------------


def test_a_worker_that_dies_after_its_commit_is_made_up_for(stack: Stack) -> None:
    """E4 I1: killed between the commit and the delete; right again within seconds."""
    crash = Crash(stack)
    stack.start(apis=0, workers=1, dispatchers=1, sandbox=False)
    Counter.objects.create(name="a", value=1)
    assert COUNTER.get(name="a") == 1
    crash.arm("settle.committed")
    id = accept("scripted.cached", label="a")
    crash.wait("settle.committed")
    assert COUNTER.get(name="a") == 1, "nobody has told the cache"
    assert records.pending().number == 1
    wait_until(lambda: COUNTER.get(name="a") == 2, timeout=6)
    wait_until(lambda: records.pending().number == 0)
    assert Operation.objects.get(pk=id).state == "done"


@pytest.mark.full
def test_an_invalidation_lost_in_a_black_hole_is_repaired_after_it(lab: Lab, stack: Stack) -> None:
    """E4 E7 I1: the cache cannot be reached at commit; the work goes on, and readers are right
    again within seconds of its recovery."""
    with Proxy(lab.cache.url) as wire:
        stack.env["CACHE_URL"] = wire.url
        stack.start(apis=0, workers=1, dispatchers=1, sandbox=False)
        Counter.objects.create(name="a", value=1)
        assert COUNTER.get(name="a") == 1
        wire.black_hole()
        ids = [accept("scripted.cached", label="a") for _ in range(10)]
        ended = Operation.objects.filter(pk__in=ids, state="done")
        wait_until(lambda: ended.count() == 10, timeout=15)
        assert COUNTER.get(name="a") == 1, "this process reaches the cache all the time"
        # Past the time at which each record was to be applied.
        wait_until(lambda: records.pending().oldest > 5, timeout=10)
        assert COUNTER.get(name="a") == 1
        wire.heal()
        wait_until(lambda: COUNTER.get(name="a") == 11, timeout=6)
        wait_until(lambda: records.pending().number == 0)


def test_a_status_never_comes_from_the_cache(stack: Stack) -> None:
    """A8: nothing is looked up there, and the answer is right while the cache is frozen."""
    stack.start(apis=1, workers=1, dispatchers=1, sandbox=False)
    with new_client(stack.api_url) as client, stack.lab.cache.client() as cache:
        path = client.post(body={"label": "x"}).headers["Location"]
        cache.config_resetstat()
        for _ in range(5):
            client.get(path)
        wait_until(lambda: client.get(path).json()["state"] == "done")
        used = cache.info("commandstats")
        assert not {"cmdstat_get", "cmdstat_mget"} & used.keys(), sorted(used)
        stack.lab.cache.stop()
        path = client.post(body={"label": "x"}).headers["Location"]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client.get, [path] * 4))
        wait_until(lambda: client.get(path).json()["state"] == "done")
