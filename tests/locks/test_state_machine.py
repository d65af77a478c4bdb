"""Any order of acquire, renew, expire, release, pause, theft and flush, against a real server."""

import time
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import sampled_from

from locks import Lease, LeaseError, LeaseLost, release
from tests.lab.services import ValkeyServer

#: Seconds. Long enough for a few steps, short enough to run out while a client is paused.
TTL = 0.25

CLIENTS = sampled_from(range(3))


class Leases(RuleBasedStateMachine):
    """Three clients that want one key."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.client.flushdb()
        self.leases = [Lease("a", ttl=TTL) for _ in range(3)]
        #: Leases that were wiped or taken while held: their holders may believe a little longer.
        self.undermined: set[int] = set()
        self.ever_lost: set[int] = set()
        self.last_fence = 0

    @rule(who=CLIENTS)
    def acquire(self, who: int) -> None:
        lease = self.leases[who]
        if lease.held:
            with pytest.raises(LeaseError):
                lease.acquire()
            return
        before = lease.fence if self._owner_in_store() == lease.owner else None
        rival = self._owner_in_store()
        granted = lease.acquire()
        self.ever_lost.discard(who)
        if granted:
            self.undermined.discard(who)
            if before is None or lease.fence != before:
                assert lease.fence > self.last_fence
                self.last_fence = lease.fence
        else:
            assert rival not in (None, lease.owner) or self._owner_in_store() is not None

    @rule(who=CLIENTS)
    def renew(self, who: int) -> None:
        lease = self.leases[who]
        held_before = lease.held
        try:
            lease.renew()
        except LeaseLost:
            assert not lease.held
        else:
            assert held_before
            assert who not in self.undermined
            assert lease.remaining() > TTL / 2

    @rule(who=CLIENTS)
    def give_back(self, who: int) -> None:
        lease = self.leases[who]
        owner = lease.owner
        if lease.release():
            assert who not in self.undermined
        assert self._owner_in_store() != owner
        assert not lease.held
        self.undermined.discard(who)
        self.ever_lost.discard(who)

    @rule(seconds=sampled_from((0.02, 0.08, 0.16, TTL + 0.05)))
    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    @precondition(lambda self: any(lease.held for lease in self.leases))
    @rule()
    def steal(self) -> None:
        """A rescuer releases the holder's lease by its token."""
        for who, lease in enumerate(self.leases):
            if lease.held and release("a", lease.owner):
                self.undermined.add(who)

    @rule()
    def flush(self) -> None:
        self.client.flushdb()
        self.undermined |= {who for who, lease in enumerate(self.leases) if lease.held}

    @invariant()
    def at_most_one_holds_rightly(self) -> None:
        rightly = [
            who
            for who, lease in enumerate(self.leases)
            if lease.held and who not in self.undermined
        ]
        assert len(rightly) <= 1

    @invariant()
    def who_holds_rightly_is_in_the_store(self) -> None:
        in_store = self._owner_in_store()
        for who, lease in enumerate(self.leases):
            # Asked after the store: what is held now was held then.
            if who not in self.undermined and lease.held:
                assert in_store == lease.owner

    @invariant()
    def a_loss_stays_a_loss(self) -> None:
        for who in self.ever_lost:
            assert self.leases[who].lost
        self.ever_lost |= {who for who, lease in enumerate(self.leases) if lease.lost}

    def _owner_in_store(self) -> str | None:
        owner = self.client.hget("locks:lease:a", "owner")
        return None if owner is None else str(owner)


@pytest.fixture
def machine(locks: ValkeyServer, fences: None) -> Iterator[type[Leases]]:
    with redis.Redis.from_url(locks.url, decode_responses=True) as client:
        Leases.client = client
        yield Leases


def run(machine: type[Leases], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # a run against the clock does not shrink
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_lease_keeps_its_promises_in_any_order(machine: type[Leases]) -> None:
    """D1, D2"""
    run(machine, 6)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_lease_keeps_its_promises_in_any_order_for_long(machine: type[Leases]) -> None:
    """D1, D2"""
    run(machine, 80)
