"""Comparing gateway and store, both ways, and mending what is safe.

=========================================  ==============================================
charged, and the operation came to         refunded, and pieces still held are released,
nothing (failed, cancelled, released)      by an operation of kind ``purchases.repair``
pieces held for an operation that ended    likewise: released once nothing can be charged
either of them after some repairs          reported
charged twice, or charged for nobody       reported
done, but not charged or charged back      reported
pieces held that belong to no purchase     reported
=========================================  ==============================================

A purchase that is open, or dead and waiting for an operator, is nobody else's business.
Reports are dead letters of category ``drift``.
"""

import logging
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import BigIntegerField, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, Now

from inventory.models import Product
from operations import BadPayload, DependencyError, NotReady, drift
from operations.intake import NotAccepting
from operations.models import OPEN, Operation, State
from purchases import gateway, repair
from purchases.gateway import Charge
from purchases.models import Purchase, PurchaseState, ReconciliationMark
from purchases.payment import DEPENDENCY, gateway_outcomes

log = logging.getLogger(__name__)

KIND = "purchases.purchase"
#: What is younger may still be under way between gateway and store.
SETTLED = timedelta(minutes=15)
#: As much time is compared at once.
WINDOW = timedelta(hours=1)
#: Once everything is compared, it begins again from so long ago: refunds come late.
LOOKBACK = timedelta(days=3)
#: Purchases looked at by one statement.
PAGE = 200
#: What is still there after so many repairs is for people.
REPAIRS = 3
#: The drift that says so.
IN_VAIN = "RepairedInVain"
#: The mark's only row.
_MARK = 1


def reconcile(*, seconds: float, settled: timedelta = SETTLED) -> dict[str, int]:
    """Compare for about so long, and go on from there the next time.

    :param settled: only what is older is compared
    :returns: how many were repaired and reported, and windows compared
    """
    end = time.monotonic() + seconds
    counted = {"repaired": 0, "reported": 0, "windows": 0}
    _count(counted, _held(settled))
    _count(counted, _stock(Product.objects.all()))
    try:
        for since, until in _windows(settled):
            _count(counted, _compared(since, until))
            ReconciliationMark.objects.update_or_create(pk=_MARK, defaults={"position": until})
            counted["windows"] += 1
            if time.monotonic() > end:
                break
    except (DependencyError, NotReady) as error:
        log.warning("Reconciliation goes on when the gateway answers: %s", error)
    return counted


def look_again(name: str, subject: str) -> dict[str, int]:
    """Compare anew what was reported as a drift; see :mod:`purchases.recheck`.

    :returns: how many were repaired and reported
    :raises DependencyError: the gateway does not answer
    :raises BadPayload: there is no drift of this name
    """
    counted = {"repaired": 0, "reported": 0}
    _count(counted, _seen_again(name, subject))
    return counted


def _seen_again(name: str, subject: str) -> Iterator[str]:
    match name:
        case "ChargedForNobody" | "ChargedTwice":
            try:
                with gateway_outcomes():
                    of, charge = gateway.labelled(subject)
            except gateway.Rejected:
                return
            if of and charge.status == "succeeded":
                yield from _charged([(of, charge)])
        case "DoneButNotCharged" | "DoneButNotPaid" | "DoneButRefunded":
            purchase = Purchase.objects.filter(
                operation=uuid.UUID(subject), state=PurchaseState.CONFIRMED
            ).first()
            if purchase is not None:
                yield from _money_of(purchase, _retrieved(purchase.charge))
        case "HeldForNobody":
            yield from _stock(Product.objects.filter(sku=subject))
        case _:
            raise BadPayload(f"There is no drift {name!r}.")


def _count(counted: dict[str, int], outcomes: Iterator[str]) -> None:
    for outcome in outcomes:
        counted[outcome] += 1


def _windows(settled: timedelta) -> Iterator[tuple[datetime, datetime]]:
    first = Purchase.objects.annotate(now=Now()).order_by("created_at").first()
    if first is None:
        return
    end = first.now - settled
    mark = ReconciliationMark.objects.filter(pk=_MARK).first()
    since = (
        first.created_at - timedelta(seconds=gateway.CLOCK_MARGIN)
        if mark is None
        else mark.position
    )
    if since >= end:
        since = end - LOOKBACK
    while since < end:
        until = min(since + WINDOW, end)
        yield since, until
        since = until


# --- from the gateway to the store ------------------------------------------------------


def _compared(since: datetime, until: datetime) -> Iterator[str]:
    """Charges made and purchases begun in this time."""
    charges: dict[str, Charge] = {}
    after, more = "", True
    while more:
        # Each page a call of its own, so that however many there are, none takes too long.
        with gateway_outcomes():
            page = gateway.listed(since, until, after)
        charges |= {charge.id: charge for _, charge in page.payments}
        yield from _charged(
            [(of, charge) for of, charge in page.payments if of and charge.status == "succeeded"]
        )
        after, more = page.after, bool(page.after)
    yield from _done(since, until, charges)


def _charged(kept: list[tuple[str, Charge]]) -> Iterator[str]:
    ids = [id for of, _ in kept if (id := _uuid(of)) is not None]
    purchases = {row.operation: row for row in Purchase.objects.filter(operation__in=ids)}
    operations = {row.pk: row for row in Operation.objects.filter(pk__in=ids)}
    for of, charge in kept:
        id = _uuid(of)
        purchase = None if id is None else purchases.get(id)
        row = None if id is None else operations.get(id)
        if purchase is None and (row is None or row.state == State.DONE):
            yield from _report(
                "ChargedForNobody", charge.id, f"{charge.id} says it is for {of[:100]}."
            )
        elif purchase is not None and purchase.state == PurchaseState.CONFIRMED:
            if purchase.charge != charge.id:
                yield from _report(
                    "ChargedTwice", charge.id, f"{of} is paid by {purchase.charge} already."
                )
        elif row is None or row.state not in (*OPEN, State.DEAD):
            begun = purchase or row
            assert id is not None
            assert begun is not None
            yield from _repair(id, begun.created_at, charge.id)


def _repair(id: uuid.UUID, since: datetime, charge: str = "") -> Iterator[str]:
    """Have a charge, or pieces held, of an operation go back."""
    what = charge or "held"
    for number in range(1, REPAIRS + 1):
        try:
            accepted = repair.begin(id, since, charge, f"{id}:{what}:{number}")
        except NotAccepting:
            return  # found again by the next run
        if not accepted.replayed:
            log.warning("What %s took goes back: %s.", id, what)
            yield "repaired"
            return
        if accepted.operation["state"] in (*OPEN, State.DEAD):
            return  # being worked on, or an operator's
        # It ended, perhaps cancelled by an operator, and what it was to mend is still there.
        # (Or it ended in this very moment: then the next one finds nothing to do.)
    yield from _report(IN_VAIN, f"{id}:{what}", f"{what} of {id} is there after {REPAIRS} repairs.")


def repair_again(subject: str, key: str) -> dict[str, int] | None:
    """Try once more what some repairs have not mended; None: that is under way.

    :param subject: as :data:`IN_VAIN` was reported
    :param key: names this try
    :returns: how many were repaired and reported
    :raises NotAccepting: not now
    """
    of, _, what = subject.partition(":")
    id = uuid.UUID(of)
    purchase = Purchase.objects.filter(operation=id).first()
    begun = purchase or Operation.objects.filter(pk=id).first()
    if begun is None:
        return {"repaired": 0, "reported": 0}
    charge = "" if what == "held" else what
    accepted = repair.begin(id, begun.created_at, charge, f"{id}:{what}:{key}")
    if not accepted.replayed or accepted.operation["state"] in OPEN:
        return None
    if accepted.operation["state"] != State.DEAD and _is_there(purchase, charge):
        message = f"{what} of {id} is there after {REPAIRS} repairs and one more."
        return {"repaired": 0, "reported": len(list(_report(IN_VAIN, subject, message)))}
    return {"repaired": 1, "reported": 0}


def _is_there(purchase: Purchase | None, charge: str) -> bool:
    if not charge:
        return purchase is not None and purchase.state == PurchaseState.RESERVED
    kept = _retrieved(charge)
    return kept is not None and kept.status == "succeeded"


# --- from the store to the gateway ------------------------------------------------------


def _done(since: datetime, until: datetime, charges: dict[str, Charge]) -> Iterator[str]:
    """Purchases that were confirmed: is their money there?"""
    confirmed = Purchase.objects.filter(
        state=PurchaseState.CONFIRMED, created_at__gte=since, created_at__lt=until
    ).order_by("pk")
    for purchase in confirmed.iterator(chunk_size=PAGE):
        charge = charges.get(purchase.charge) or _retrieved(purchase.charge)
        yield from _money_of(purchase, charge)


def _money_of(purchase: Purchase, charge: Charge | None) -> Iterator[str]:
    of = str(purchase.operation)
    if charge is None:
        yield from _report("DoneButNotCharged", of, f"The gateway has no {purchase.charge}.")
    elif charge.status != "succeeded":
        yield from _report("DoneButNotPaid", of, f"{charge.id} is {charge.status}.")
    elif charge.amount_refunded:
        yield from _report(
            "DoneButRefunded", of, f"{charge.amount_refunded} of {charge.amount} went back."
        )


def _retrieved(id: str) -> Charge | None:
    try:
        with gateway_outcomes():
            return gateway.retrieve(id)
    except gateway.Rejected:
        return None


def _held(settled: timedelta) -> Iterator[str]:
    """Pieces held for an operation that has ended and waits for no operator."""
    after = uuid.UUID(int=0)
    while True:
        page = list(
            Purchase.objects.filter(
                state=PurchaseState.RESERVED, pk__gt=after, created_at__lt=Now() - settled
            ).order_by("pk")[:PAGE]
        )
        if not page:
            return
        ids = [purchase.operation for purchase in page]
        operations = {row.pk: row for row in Operation.objects.filter(pk__in=ids)}
        for purchase in page:
            row = operations.get(purchase.operation)
            if row is None or row.state not in (*OPEN, State.DEAD):
                yield from _repair(purchase.operation, purchase.created_at)
        after = page[-1].pk


def _stock(products: QuerySet[Product]) -> Iterator[str]:
    """Pieces held of each product against the purchases that hold them, in one statement."""
    holding = (
        Purchase.objects.filter(product=OuterRef("pk"), state=PurchaseState.RESERVED)
        .order_by()
        .values("product")
        .annotate(pieces=Sum("quantity"))
        .values("pieces")
    )
    held = Coalesce(Subquery(holding), 0, output_field=BigIntegerField())
    reserved = (
        products.annotate(held=held)
        .exclude(reserved=F("held"))
        .values_list("sku", "reserved", "held")
    )
    for sku, pieces, purchases in reserved:
        yield from _report(
            "HeldForNobody",
            sku,
            # The difference, which stays while people go on buying.
            f"Pieces of {sku} held, less those held for purchases: {pieces - purchases}.",
        )


def _report(name: str, subject: str, message: str) -> Iterator[str]:
    if drift.report(KIND, name, subject, message, dependency=DEPENDENCY):
        log.error("Drift: %s", message)
        yield "reported"


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
