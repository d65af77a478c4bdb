"""Two hundred readers in four processes meet one key."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
import redis
from pytest_django import DjangoDbBlocker

from tests.lab.fixtures import use_database
from tests.lab.scripted.models import Counter
from tests.lab.services import DATABASE, Lab
from tests.lab.waiting import wait_until
from tests.locks.cache.crowd import Crowd, Process, at_once

READERS = 200
#: Seconds. Long beside what starting two hundred threads takes.
LOAD = 0.5
TOGETHER = 8


@pytest.fixture(scope="module")
def crowd(lab: Lab, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Crowd]:
    lab.cache.start()
    with Crowd(4, environment(lab)) as crowd:
        yield crowd


def environment(lab: Lab) -> dict[str, str]:
    return {
        "DATABASE_URL": lab.postgres.url_of(DATABASE),
        "CACHE_LOADS": "100",  # so that only the limit of all processes is felt
        "CACHE_LOADS_TOGETHER": str(TOGETHER),
        # A busy machine may take long to open two hundred database connections.
        "CACHE_LOAD_WAIT": "30",
    }


@pytest.fixture(autouse=True)
def counters(source: None, lab: Lab) -> None:
    use_database(DATABASE)
    lab.cache.flush()
    Counter.objects.create(name="hot", value=1)


def test_a_missing_hot_key_is_loaded_once(crowd: Crowd) -> None:
    """E5: the others wait for it."""
    readings, loads = crowd.read("patient", "hot", READERS, LOAD)
    assert len(loads) == 1
    assert [reading.value for reading in readings] == [1] * READERS


def test_an_expired_hot_key_is_loaded_once_and_the_others_are_told_the_old_value(
    lab: Lab, crowd: Crowd
) -> None:
    """E5: at once."""
    crowd.read("lenient", "hot", 1)
    Counter.objects.update(value=2)
    with lab.cache.client() as client:
        let_it_expire(client, "sekali:1:crowd-lenient@1:hot")
    readings, loads = crowd.read("lenient", "hot", READERS, LOAD)
    assert len(loads) == 1
    # Who comes when the load has ended is told the new value, too.
    values = [reading.value for reading in readings]
    assert values.count(1) > READERS / 10
    assert values.count(1) + values.count(2) == READERS
    assert values.count(2) >= 1
    old = sorted(reading.took for reading in readings if reading.value == 1)
    assert old[len(old) // 2] < LOAD


def let_it_expire(client: redis.Redis, key: str) -> None:
    """Have the TTL of a value be over by now."""
    raw = cast("bytes", client.get(key))
    past = b"%d " % int((time.time() - 1) * 1000)
    client.set(key, past + raw.partition(b" ")[2], keepttl=True)


def test_after_a_load_that_fails_another_reader_loads(crowd: Crowd) -> None:
    """E5: only the one whose load it was is told."""
    readings, loads = crowd.read("patient", "hot", READERS, [-LOAD, 0.1])
    errors = [reading.error for reading in readings if reading.error]
    # Each process fails its first load, if it comes to one.
    assert set(errors) == {"ZeroDivisionError"}
    assert len(errors) == len(loads) - 1 <= 4
    assert {reading.value for reading in readings if not reading.error} == {1}
    assert at_once(loads) == 1


def load_for_themselves(crowd: Crowd) -> None:
    """All readers, while nobody who has the token stores a value."""
    readings, loads = crowd.read("strict", "hot", READERS, 0.02)
    assert [reading.value for reading in readings] == [1] * READERS
    assert len(loads) > 1
    assert at_once(loads) <= TOGETHER
    # They waited their second, not the lease of two, and then stood in line for a place.
    assert min(reading.took for reading in readings) >= 0.9


def test_while_the_token_of_a_dead_process_stands_few_load_at_once(lab: Lab, crowd: Crowd) -> None:
    """E5: after a bounded wait, under a limit of all processes together."""
    with lab.cache.client() as client:
        client.set("sekali:1:crowd-strict@1:hot!fill", "of the dead", px=5000)
    load_for_themselves(crowd)


@pytest.mark.full
@pytest.mark.timeout(90)
def test_when_the_one_that_loads_dies_the_others_load_and_soon_it_is_cached(
    lab: Lab, crowd: Crowd
) -> None:
    """E5: once the lease is over."""
    with loading(lab) as victim:
        victim.kill()
        load_for_themselves(crowd)
    wait_until(lambda: not crowd.read("strict", "hot", 4)[1], timeout=10)


@pytest.mark.full
@pytest.mark.timeout(90)
def test_when_the_one_that_loads_is_stopped_it_cannot_store_what_it_read(
    lab: Lab, crowd: Crowd
) -> None:
    """E3 E5: however late it goes on."""
    with loading(lab, 0.2) as victim:
        victim.send(signal.SIGSTOP)
        load_for_themselves(crowd)
        wait_until(lambda: not crowd.read("strict", "hot", 4)[1], timeout=10)
        Counter.objects.update(value=2)
        with lab.cache.client() as client:
            # An invalidation.
            client.delete("sekali:1:crowd-strict@1:hot", "sekali:1:crowd-strict@1:hot!fill")
        victim.send(signal.SIGCONT)
        assert victim.answer()["readings"]
        readings, _ = crowd.read("strict", "hot", READERS)
    assert {reading.value for reading in readings} == {2}


@contextmanager
def loading(lab: Lab, seconds: float = 30) -> Iterator[Process]:
    """A process that is in the middle of a load."""
    with Crowd(1, environment(lab)) as crowd:
        crowd.begin("strict", "hot", 1, seconds)
        with lab.cache.client() as client:
            wait_until(lambda: client.keys("*hot!fill"), message="nobody loads", every=0.01)
        yield crowd.processes[0]


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["stop", "kill", "restart", "flush"])
def test_when_the_cache_goes_away_in_the_middle_of_a_stampede(lab: Lab, what: str) -> None:
    """E7: every answer is right and in time, and the database is not trampled."""
    places = 4
    with Crowd(4, environment(lab) | {"CACHE_LOADS": str(places), "CACHE_REST": "60"}) as crowd:
        crowd.begin("patient", "hot", READERS, 0.1)
        with lab.cache.client() as client:
            wait_until(lambda: client.keys("*hot!fill"), message="nobody loads", every=0.01)
        getattr(lab.cache, what)()
        readings, loads = crowd.end()
        lab.cache.recover()
    assert [reading.value for reading in readings] == [1] * READERS
    assert at_once(loads) <= 4 * places
    # Fifty readers of a process load four at a time, a tenth of a second each.
    assert max(reading.took for reading in readings) < 25


@pytest.mark.full
def test_a_load_slower_than_the_wait_is_not_waited_for(crowd: Crowd) -> None:
    """E5: nobody waits for ever; few load besides."""
    readings, loads = crowd.read("strict", "hot", 40, [1.8, 0.05])
    assert [reading.value for reading in readings] == [1] * 40
    assert len(loads) > 4
    assert at_once(loads) <= TOGETHER + 1
    first_end = min(load.ended for load in loads if load.ended - load.began > 1)
    assert sum(load.began < first_end for load in loads) > 1, "none began before it ended"
