"""Who waits behind a dead operation, for people to see. What holds them: ``operations.verbs``."""

from typing import Any

from django.db.models import Case, Count, IntegerField, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from operations import registry
from operations.models import UNSETTLED, DeadLetter, Operation, State

#: For each resource the first of its operations that is dead, as a table in FROM.
FIRST_DEAD = """(
    SELECT resource, min(seq) AS seq FROM operations_operation
    WHERE state = 'dead' AND resource <> '' GROUP BY resource
)"""


def with_waiting(letters: QuerySet[DeadLetter]) -> QuerySet[Any]:
    """Each letter with ``waiting``: how many operations wait for a decision about it."""
    behind = (
        Operation.objects.filter(
            kind__in=registry.waiting(),
            state=State.PENDING,
            resource=OuterRef("operation__resource"),
            seq__gt=OuterRef("operation__seq"),
        )
        .exclude(resource="")
        .order_by()
        .values("resource")
        .annotate(number=Count("pk"))
        .values("number")
    )
    return letters.annotate(
        waiting=Case(
            When(state__in=UNSETTLED, then=Coalesce(Subquery(behind), 0)),
            default=0,
            output_field=IntegerField(),
        )
    )


def waits_for(operation: Operation) -> Operation | None:
    """The first dead operation that this one waits behind."""
    if operation.state != State.PENDING or operation.kind not in registry.waiting():
        return None
    dead = Operation.objects.filter(
        resource=operation.resource, state=State.DEAD, seq__lt=operation.seq
    )
    return dead.exclude(resource="").order_by("seq").first()
