"""How long an answer asks to be left alone."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: The longest wait that anybody outside may ask for, in seconds.
LONGEST = 3600.0
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?\Z", re.ASCII)


def seconds_of(header: str | None) -> float:
    """What ``Retry-After`` says, in seconds from now, from 0 to :data:`LONGEST`.

    A number (some send fractions, though they must not) or an HTTP date. Anything else is
    taken for nothing: 0.
    """
    text = (header or "").strip()
    if _NUMBER.match(text):
        return min(float(text), LONGEST)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    try:
        wait = (until - datetime.now(UTC)).total_seconds()
    except OverflowError:
        return 0.0
    return min(max(0.0, wait), LONGEST)
