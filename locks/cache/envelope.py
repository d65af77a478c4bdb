"""What stands in the cache: a line that says how fresh the value is, and the value.

``<fresh until, ms since 1970 by the server's clock> <version of the entry or ->\\n<value>``

The scripts in ``lua/`` write and read the same form.
"""

import time
from typing import NamedTuple


class Envelope(NamedTuple):
    fresh_until: int
    version: bytes
    body: bytes

    @property
    def is_fresh(self) -> bool:
        """By this host's clock. Where it is wrong the value's life is bounded all the same,
        since the server ends it."""
        return time.time() * 1000 < self.fresh_until


def opened(raw: bytes | None, version: bytes | None) -> Envelope | None:
    """What is in the cache, unless it is nothing, garbage, or of another version.

    :param version: the entry's version as it stands beside the value; ``b"-"`` for an entry
        without one. None, absent, never matches
    """
    if raw is None or version is None:
        return None
    head, _, body = raw.partition(b"\n")
    fresh_until, _, of = head.partition(b" ")
    if of != version or not fresh_until.isdigit():
        return None
    return Envelope(int(fresh_until), of, body)
