"""What people decide about dead letters."""

from uuid_utils.compat import uuid7

from operations import registry, verbs
from operations.models import DeadLetter
from operations.registry import COMPENSATION_SUFFIX, UnknownKind


class CannotDiscard(Exception):
    """Giving this operation up would leave something undone that nobody would see."""


def replay(letter: DeadLetter, *, by: int, reason: str = "") -> bool:
    """Try a dead operation again, with all its attempts. False: the letter is not open.

    :param by: primary key of the user who decided
    """
    return verbs.replay(letter.pk, by=by, reason=reason)


def discard(letter: DeadLetter, *, by: int, reason: str) -> str | None:
    """Give a dead operation up, once what it did outside is undone.

    :returns: ``discarded``, ``discarding`` while the compensation runs, or None when the
        letter is not open
    :raises CannotDiscard: nobody here knows how to undo it
    """
    try:
        kind = registry.get(letter.kind)
    except UnknownKind:
        raise CannotDiscard(f"The kind {letter.kind} is not known to this version.") from None
    if kind.compensates:
        raise CannotDiscard("A compensation cannot be given up. Mend what stops it and replay it.")
    return verbs.discard(
        letter.pk,
        compensation=kind.name + COMPENSATION_SUFFIX if kind.compensate else None,
        compensation_id=uuid7(),
        retention=kind.key_retention,
        by=by,
        reason=reason,
    )
