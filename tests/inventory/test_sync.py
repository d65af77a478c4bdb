"""The sync of a user's inventory, an attempt at a time in the test's own process."""

import uuid
from collections.abc import Iterator, Mapping

import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from inventory.holdings import Holdings, apply_snapshot, grant, holdings_of, version_of
from inventory.supplier import Snapshot
from operations.executor import Outcome, execute
from operations.models import DeadLetter, Operation
from tests.lab.accepting import accept, owner
from tests.lab.crash import Crash
from tests.lab.processes import Stack
from tests.lab.services import Lab, ValkeyServer
from tests.lab.waiting import wait_until
from tests.sandbox.process import SandboxProcess, sandbox_process

KIND = "inventory.sync"
USER = "demo"


@pytest.fixture(scope="module")
def shared_sandbox(lab: Lab) -> Iterator[SandboxProcess]:
    with sandbox_process(lab, "sync") as running:
        yield running


@pytest.fixture
def supplier(
    database: str,
    broker: ValkeyServer,
    locks: ValkeyServer,
    shared_sandbox: SandboxProcess,
    settings: Settings,
) -> SandboxProcess:
    """A supplier without faults; the test's own process makes the attempts."""
    settings.SUPPLIER_URL = shared_sandbox.supplier_url
    shared_sandbox.reset()
    return shared_sandbox


def tell(supplier: SandboxProcess, revision: int, items: Mapping[str, int]) -> None:
    """Have the supplier tell this of the user from now on."""
    listed = [{"sku": sku, "quantity": quantity} for sku, quantity in items.items()]
    snapshot = {"revision": revision, "items": listed}
    supplier.http.put(f"/supplier/users/{USER}", json=snapshot).raise_for_status()


def request(*, precondition: dict[str, object] | None = None) -> uuid.UUID:
    return accept(KIND, publish=False, user=owner(USER), precondition=precondition)


def attempt(id: uuid.UUID) -> Outcome:
    Operation.objects.filter(pk=id).update(not_before=Now())
    return execute(id, KIND, process="test:1")


def error_code(operation: Operation) -> object:
    return None if operation.error is None else operation.error["code"]


def sync() -> Operation:
    id = request()
    attempt(id)
    return Operation.objects.get(pk=id)


@pytest.mark.req("G1")
def test_what_the_supplier_knows_becomes_the_inventory(supplier: SandboxProcess) -> None:
    """G1: asked for by the name of the user, also what is not sold here."""
    tell(supplier, 7, {"sku-1": 2, "unheard-of": 3, "none": 0})

    operation = sync()

    assert operation.state == "done"
    assert operation.result == {"revision": 7, "applied": True, "items": 3}
    assert holdings_of(owner(USER)) == Holdings(7, 1, {"sku-1": 2, "unheard-of": 3})
    assert supplier.supplier_calls() == 1


@pytest.mark.req("G1", "B10")
@pytest.mark.parametrize("revision", [6, 7])
def test_a_snapshot_that_is_not_news_is_not_applied(
    supplier: SandboxProcess, revision: int
) -> None:
    """G1 B10: the operation is done all the same, and says so."""
    tell(supplier, 7, {"sku-1": 2})
    sync()
    tell(supplier, revision, {"sku-1": 9})

    operation = sync()

    assert operation.result == {"revision": revision, "applied": False, "items": 1}
    assert holdings_of(owner(USER)) == Holdings(7, 1, {"sku-1": 2})


@pytest.mark.req("G1")
def test_a_newer_snapshot_keeps_what_was_bought(supplier: SandboxProcess) -> None:
    """G1 G2."""
    tell(supplier, 7, {"sku-1": 2})
    sync()
    grant(owner(USER), "sku-1", 5, operation=uuid.uuid4())
    tell(supplier, 8, {"sku-2": 1})

    assert sync().state == "done"

    assert holdings_of(owner(USER)) == Holdings(8, 3, {"sku-1": 5, "sku-2": 1})


@pytest.mark.req("B5", "B6", "G1")
def test_a_supplier_that_fails_is_asked_again(supplier: SandboxProcess) -> None:
    """B5 B6 G1."""
    supplier.faults(supplier={"mode": "error", "count": 1})
    id = request()

    assert [attempt(id), attempt(id)] == [Outcome.RETRY, Outcome.DONE]


@pytest.mark.req("B6", "C1")
def test_a_supplier_that_stays_away_ends_in_a_dead_letter(supplier: SandboxProcess) -> None:
    """B6 C1."""
    supplier.faults(supplier={"mode": "drop_reply"})
    id = request()

    assert [attempt(id) for _ in range(5)] == [Outcome.RETRY] * 4 + [Outcome.DEAD]

    letter = DeadLetter.objects.get(operation_id=id)
    assert (letter.category, letter.dependency) == ("dependency", "supplier")
    assert version_of(owner(USER)) == 0


@pytest.mark.req("B5")
def test_a_supplier_that_refuses_is_not_asked_again(supplier: SandboxProcess) -> None:
    """B5."""
    supplier.faults(supplier={"mode": "decline"})

    operation = sync()

    assert (operation.state, operation.attempts) == ("failed", 1)
    assert error_code(operation) == "supplier_refused"


@pytest.mark.req("A9")
@pytest.mark.parametrize(("versions", "state"), [([1], "done"), ([0, 2], "failed")])
def test_an_inventory_that_changed_before_the_work_is_left_alone(
    supplier: SandboxProcess, versions: list[int], state: str
) -> None:
    """A9."""
    tell(supplier, 7, {"sku-1": 2})
    sync()
    tell(supplier, 8, {"sku-1": 3})
    id = request(precondition={"versions": versions})

    attempt(id)

    operation = Operation.objects.get(pk=id)
    assert operation.state == state
    if state == "failed":
        assert error_code(operation) == "precondition_failed"
        assert holdings_of(owner(USER)) == Holdings(7, 1, {"sku-1": 2})


@pytest.mark.req("A9")
def test_an_inventory_that_was_not_there_may_be_expected(supplier: SandboxProcess) -> None:
    """A9: as version 0, and that it is not there any more is noticed."""
    first, second = (request(precondition={"versions": [0]}) for _ in range(2))

    assert [attempt(first), attempt(second)] == [Outcome.DONE, Outcome.REFUSED]

    assert version_of(owner(USER)) == 1


@pytest.mark.req("D2", "B10")
def test_a_sync_that_was_overtaken_by_a_later_claim_changes_nothing(
    supplier: SandboxProcess,
) -> None:
    """D2 B10: whatever revision it has in its hand."""
    tell(supplier, 7, {"sku-1": 2})
    apply_snapshot(owner(USER), Snapshot(3, {"sku-2": 1}), epoch=2**40)

    operation = sync()

    assert operation.result == {"revision": 7, "applied": False, "items": 1}
    assert holdings_of(owner(USER)) == Holdings(3, 1, {"sku-2": 1})


@pytest.mark.req("G1", "B1", "B2", "I1")
def test_a_worker_dies_half_way_through_a_sync(stack: Stack) -> None:
    """G1 B1 B2 I1: its child or the whole of it; the snapshot is applied once."""
    crash = Crash(stack)
    stack.start(apis=0, workers=0)
    worker = stack.add_worker(concurrency=3)
    for number, what in enumerate(("kill", "kill-parent"), start=1):
        crash.arm("sync.fetched", what)
        id = accept(KIND, user=owner(USER), key=f"k{number}")
        crash.wait("sync.fetched")
        if what == "kill-parent":
            wait_until(lambda: not worker.is_running, message="the worker was to die")
            worker.discard()
            worker.start()
        wait_until(Operation.objects.filter(pk=id, state="done").exists, timeout=40)
    assert holdings_of(owner(USER)) == Holdings(1, 1, {"sku-1": 1, "sku-scarce": 1})
