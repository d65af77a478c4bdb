"""A shop, its gateway, and attempts made one at a time, in the test's own process.

An attempt is the real one, from claim to settling, on the real stores; only the message is
left out. So a test can change the world between two attempts.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import httpx
from django.db.models import F, Q, Sum
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from inventory.models import OwnedItem, Product
from operations import verbs
from operations.executor import Outcome, execute
from operations.models import DeadLetter, Operation, State
from operations.registry import COMPENSATION_SUFFIX
from purchases.models import Purchase, PurchaseState
from tests.lab.accepting import accept, owner
from tests.lab.processes import Stack
from tests.lab.waiting import wait_until

KIND = "purchases.purchase"
PRICE = 250
SKU = "sku-a"


class Witness(Protocol):
    """A sandbox and its controls."""

    http: httpx.Client

    def charges(self) -> list[dict[str, Any]]: ...
    def faults(self, **parts_: Mapping[str, Any]) -> None: ...


class StackSandbox:
    """The sandbox of a stack as a :class:`Witness`."""

    def __init__(self, stack: Stack) -> None:
        self.http = httpx.Client(base_url=stack.sandbox_url, timeout=10, trust_env=False)

    def charges(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.http.get("/ledger").json()["charges"]
        return rows

    def faults(self, **parts_: Mapping[str, Any]) -> None:
        self.http.put("/faults", json=parts_).raise_for_status()


@dataclass
class Market:
    """Ten pieces of one product at 2.50 EUR, and a customer."""

    sandbox: Witness
    product: Product
    customer: int
    pieces: int

    @classmethod
    def opened(cls, sandbox: Witness, pieces: int = 10) -> "Market":
        """On empty stores and an empty ledger."""
        product = Product.objects.create(
            sku=SKU, name="A thing", price_minor=PRICE, currency="eur", available=pieces
        )
        return cls(sandbox, product, owner("customer"), pieces)

    # --- acting ----------------------------------------------------------------------

    def order(self, *, publish: bool = False, **data: Any) -> uuid.UUID:
        """Accept a purchase of ``quantity`` pieces (1); nobody works on it yet."""
        data = {"sku": SKU, **data}
        return accept(KIND, publish=publish, user=self.customer, **data)

    def attempt(self, id: uuid.UUID, kind: str = KIND) -> Outcome:
        """Make the next attempt now, without the wait that is due before it."""
        Operation.objects.filter(pk=id).update(not_before=Now())
        return execute(id, kind, process="test:1")

    def work(self, id: uuid.UUID, kind: str = KIND) -> Operation:
        """Attempt until the operation has ended."""
        for _ in range(10):
            self.attempt(id, kind)
            operation = Operation.objects.get(pk=id)
            if not operation.is_open:
                return operation
        raise AssertionError(f"{operation} does not end: {operation.state}")

    def buy(self, **data: Any) -> Operation:
        """Order and work until the end."""
        return self.work(self.order(**data))

    def discard(self, id: uuid.UUID) -> uuid.UUID:
        """Give a dead purchase up; returns the compensation, which nobody works on yet."""
        letter = DeadLetter.objects.get(operation_id=id, state="open")
        compensation = uuid7()
        state = verbs.discard(
            letter.pk,
            compensation=KIND + COMPENSATION_SUFFIX,
            compensation_id=compensation,
            retention=timedelta(hours=1),
            by=owner("operator"),
            reason="The customer called.",
        )
        assert state == "discarding"
        return compensation

    def replay(self, id: uuid.UUID) -> None:
        """Send a dead purchase round again."""
        letter = DeadLetter.objects.get(operation_id=id, state="open")
        assert verbs.replay(letter.pk, by=owner("operator"))

    def age(self, id: uuid.UUID, *, made: timedelta, sent: timedelta) -> None:
        """Have the key of a purchase been made and last sent so much earlier."""
        Purchase.objects.filter(operation=id).update(
            key_made_at=F("key_made_at") - made,
            key_sent_at=F("key_sent_at") - sent,
            created_at=F("created_at") - made,
        )

    # --- looking ---------------------------------------------------------------------

    def purchase(self, id: uuid.UUID) -> Purchase:
        return Purchase.objects.get(operation=id)

    def ledger(self) -> list[tuple[str, int, str]]:
        """Key, amount and status of each charge, oldest first."""
        return [(row["key"], row["amount"], row["status"]) for row in self.sandbox.charges()]

    def stock(self) -> tuple[int, int]:
        self.product.refresh_from_db()
        return self.product.available, self.product.reserved

    def agrees(self) -> bool:
        """Whether ledger, stock, purchases, grants and operations tell the same story.

        Raises ``AssertionError`` that names the difference.
        """
        confirmed = Purchase.objects.filter(state=PurchaseState.CONFIRMED)
        reserved = Purchase.objects.filter(state=PurchaseState.RESERVED)
        sold = confirmed.aggregate(sum=Sum("quantity"))["sum"] or 0
        held = reserved.aggregate(sum=Sum("quantity"))["sum"] or 0
        assert self.stock() == (self.pieces - sold, held)
        done = Operation.objects.filter(kind=KIND, state=State.DONE)
        paid = sorted(
            key.partition(":")[0] for key, _, status in self.ledger() if status == "succeeded"
        )
        by_operation = sorted(str(id) for id in confirmed.values_list("operation", flat=True))
        assert paid == by_operation == sorted(str(id) for id in done.values_list("pk", flat=True))
        granted = OwnedItem.objects.filter(~Q(operation=None)).values_list("operation", flat=True)
        assert sorted(map(str, granted)) == by_operation
        kept = sum(amount for _, amount, status in self.ledger() if status == "succeeded")
        assert kept == (confirmed.aggregate(sum=Sum("amount"))["sum"] or 0)
        return True


def settle_down(*ids: uuid.UUID, timeout: float = 40) -> list[str]:
    """Wait until workers have ended all of these; their states in the same order."""
    open_ones = Operation.objects.filter(pk__in=ids, finished_at=None)
    wait_until(lambda: not open_ones.exists(), timeout=timeout, message="still open")
    states = dict(Operation.objects.filter(pk__in=ids).values_list("pk", "state"))
    return [states[id] for id in ids]
