"""Turning a kind down and up while everything runs.

What is set here counts from its commit on: the statements that accept, claim and send read
it themselves. Nobody has to be told, and no process keeps a copy.
"""

from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from operations import audit, registry, verbs
from operations.audit import Author
from operations.behind_dead import FIRST_DEAD
from operations.models import KindControl

#: What a rate may be, in operations a second. Less than the least is a pause, and says so.
LEAST_RATE, MOST_RATE = 0.001, 1_000_000
#: How many may be allowed to run at once.
LEAST_RUNNING, MOST_RUNNING = 1, 1_000_000
#: Operations recalled from the broker by one statement.
BATCH = 5_000


@dataclass(frozen=True)
class Control:
    """How a kind is controlled.

    :param rate: operations begun in a second, at most; None: any
    :param max_running: operations that run at once, at most; None: any
    """

    accepting: bool = True
    paused: bool = False
    rate: float | None = None
    max_running: int | None = None

    @property
    def held(self) -> bool:
        """Its operations are sent by the dispatcher only, or not at all."""
        return self.paused or self.rate is not None or self.max_running is not None


@dataclass(frozen=True)
class Report:
    """A kind, its control, and what waits.

    :param behind_dead: of those pending: how many wait behind a dead one, for a person
    :param oldest: seconds for which another one has waited to be begun for the first time
    :param shedding: so much waits that nothing is taken in
    """

    kind: str
    queue: str
    critical: bool
    accepting: bool
    paused: bool
    rate: float | None
    max_running: int | None
    pending: int
    behind_dead: int
    running: int
    oldest: float
    shedding: bool


def change(kind_name: str, author: Author, reason: str, **values: Any) -> Control:
    """Set ``accepting``, ``paused``, ``rate`` or ``max_running`` of a kind; it is logged.

    :param reason: why; not empty
    :returns: how it is controlled now
    :raises UnknownKind: the kind is not registered here
    :raises ValueError: a value cannot work, or the reason is missing
    """
    registry.get(kind_name)
    with transaction.atomic():
        KindControl.objects.bulk_create([KindControl(kind=kind_name)], ignore_conflicts=True)
        row = KindControl.objects.select_for_update().get(kind=kind_name)
        before = _control_of(row)
        after = Control(**{**asdict(before), **values})
        check(rate=after.rate, max_running=after.max_running)
        if after != before:
            KindControl.objects.filter(pk=row.pk).update(
                **asdict(after), tokens=0, refilled_at=Now()
            )
        audit.record(
            author,
            "kind.control",
            kind_name,
            reason=reason,
            before=asdict(before),
            after=asdict(after),
        )
    if after != before and (before.held or after.held):
        # Messages on the way count no more; the dispatcher sends anew, by what is set now.
        while verbs.recall(kind_name, BATCH) == BATCH:
            pass
    return after


def make_rows() -> None:
    """See that every registered kind has a row to be edited."""
    KindControl.objects.bulk_create(
        [KindControl(kind=kind.name) for kind in registry.kinds()], ignore_conflicts=True
    )


def held() -> dict[str, Control]:
    """The kinds that are paused or limited. One statement."""
    return {
        row.kind: control for row in KindControl.objects.all() if (control := _control_of(row)).held
    }


def report() -> list[Report]:
    """Every registered kind, in the order of their declaration."""
    with connection.cursor() as cursor:
        cursor.execute(_REPORT, {"waiting": registry.waiting()})
        counted = {row[0]: row[1:] for row in cursor.fetchall()}
    rows = {row.kind: row for row in KindControl.objects.all()}
    nothing = (0, 0, 0, 0.0, False)
    found = []
    for kind in registry.kinds():
        pending, behind, running, oldest, shedding = counted.get(kind.name, nothing)
        control = _control_of(rows[kind.name]) if kind.name in rows else Control()
        found.append(
            Report(
                kind=kind.name,
                queue=kind.queue,
                critical=kind.critical,
                **asdict(control),
                pending=pending,
                behind_dead=behind,
                running=running,
                oldest=round(float(oldest), 3),
                shedding=shedding,
            )
        )
    return found


_REPORT = f"""
SELECT kind, coalesce(pending, 0), coalesce(behind_dead, 0), coalesce(running, 0),
    coalesce(oldest, 0), coalesce(c.shed_until > statement_timestamp(), false)
FROM (
    SELECT kind, count(*) FILTER (WHERE state = 'pending') AS pending,
        count(*) FILTER (WHERE state = 'pending' AND dead.seq IS NOT NULL) AS behind_dead,
        count(*) FILTER (WHERE state = 'running') AS running,
        extract(epoch FROM statement_timestamp() - min(created_at) FILTER (
            WHERE state = 'pending' AND epoch IS NULL AND dead.seq IS NULL)) AS oldest
    FROM operations_operation AS o
    LEFT JOIN {FIRST_DEAD} AS dead ON dead.resource = o.resource AND dead.seq < o.seq
        AND o.kind = ANY(%(waiting)s::text[])
    WHERE state IN ('pending', 'running') GROUP BY kind
) AS counted FULL JOIN operations_kindcontrol AS c USING (kind)
"""


def _control_of(row: KindControl) -> Control:
    return Control(row.accepting, row.paused, row.rate, row.max_running)


def check(*, rate: float | None, max_running: int | None) -> None:
    """Can these limits work?

    :raises ValueError: they cannot, and why
    """
    # Written so that what compares with nothing, as NaN does, is refused.
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise ValueError(
            f"A rate is at least {LEAST_RATE} and at most {MOST_RATE} operations a second; "
            "pause the kind to begin none."
        )
    if max_running is not None and not LEAST_RUNNING <= max_running <= MOST_RUNNING:
        raise ValueError(f"At least {LEAST_RUNNING} and at most {MOST_RUNNING} may run at once.")
