"""What people decide about dead letters. Each decision is in the audit log, with its author."""

from django.contrib.auth import get_user_model
from django.db import transaction
from uuid_utils.compat import uuid7

from operations import audit, drift, registry, verbs
from operations.audit import Author
from operations.intake import NotAccepting, submit
from operations.models import DeadLetter, LetterState
from operations.outcomes import Category
from operations.registry import COMPENSATION_SUFFIX, UnknownKind
from operations.system import system_user


class CannotDiscard(Exception):
    """Giving this operation up would leave something undone that nobody would see."""


class CannotReplay(Exception):
    """There is nothing to try again."""


def replay(letter: DeadLetter, *, by: int, reason: str = "") -> bool:
    """Try a dead operation again, with all its attempts. False: the letter is not open.

    A drift is looked at again, as if it were seen for the first time: what can be repaired
    is, and what is still there becomes a new letter.

    :param by: primary key of the user who decided
    :raises CannotReplay: the letter has no operation, and is no drift that can be seen again
    """
    with transaction.atomic():
        if letter.operation_id is None:
            done = _look_again(letter, by, reason)
        else:
            done = verbs.replay(letter.pk, by=by, reason=reason)
        if done:
            _record("letter.replay", letter, LetterState.REPLAYED, by, reason or "None was given.")
    return done


def discard(letter: DeadLetter, *, by: int, reason: str) -> str | None:
    """Give a dead operation up, once what it did outside is undone.

    One without an operation is closed: an unreadable message, or a drift, which is not told
    again unless it changes.

    :returns: ``discarded``, ``discarding`` while the compensation runs, or None when the
        letter is not open
    :raises CannotDiscard: nobody here knows how to undo it
    :raises ValueError: there is no reason
    """
    with transaction.atomic():
        if letter.operation_id is None:
            closed = verbs.close_letter(letter.pk, LetterState.DISCARDED, by=by, reason=reason)
            state: str | None = LetterState.DISCARDED if closed else None
        else:
            state = _discard_operation(letter, by, reason)
        if state is not None:
            _record("letter.discard", letter, state, by, reason)
    return state


def _discard_operation(letter: DeadLetter, by: int, reason: str) -> str | None:
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


def _look_again(letter: DeadLetter, by: int, reason: str) -> bool:
    kind = drift.kind_to_look_again(letter.kind) if letter.category == Category.DRIFT else None
    if kind is None:
        raise CannotReplay("It has no operation that could be tried again; discard it.")
    if not verbs.close_letter(letter.pk, LetterState.REPLAYED, by=by, reason=reason):
        return False
    data = {"drift": letter.error_type, "subject": (letter.headers or {}).get("subject", "")}
    try:
        submit(kind, owner=system_user(), key=f"letter:{letter.pk}", data=data)
    except NotAccepting as error:
        raise CannotReplay(f"{kind} is not taken in now.") from error
    return True


def _record(action: str, letter: DeadLetter, state: str, by: int, reason: str) -> None:
    name = get_user_model().objects.get(pk=by).get_username()
    audit.record(
        Author(name, by),
        action,
        f"letter:{letter.pk}",
        reason=reason,
        before={"state": LetterState.OPEN, "letter": str(letter)},
        after={"state": state},
    )
