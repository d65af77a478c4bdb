"""What stands in the cache: a line that says how fresh the value is, and the value.

``<fresh until, ms since 1970 by the server's clock> <version of the entry or ->\\n<value>``

The scripts in ``lua/`` write and read the same form. Whatever else is found is nothing:
other code may have left it there.
"""

import re
import time
from typing import NamedTuple

#: Seconds by which two clocks differ without harm.
_SKEW = 1

_HEAD = re.compile(rb"([0-9]{1,15}) (\S+)\n")


class Envelope(NamedTuple):
    fresh_until: int
    version: bytes
    body: bytes

    def is_fresh(self, ttl: float) -> bool:
        """By this host's clock; where that is wrong, ``begin.lua`` asks the server's.

        :param ttl: seconds. What is fresh for longer is no value of ours, or the clock was
            set back; else it could be told for ever
        """
        return 0 < self.fresh_until / 1000 - time.time() <= ttl + _SKEW

    def may_be_served(self, stale: float) -> bool:
        """Whether its TTL ended no more than ``stale`` seconds ago."""
        return -stale < self.fresh_until / 1000 - time.time() <= 0


def opened(raw: bytes | None, version: bytes | None) -> Envelope | None:
    """What is in the cache, unless it is nothing, garbage, or of another version.

    :param version: the entry's version as it stands beside the value; ``b"-"`` for an entry
        without one. None, absent, never matches
    """
    if raw is None or version is None:
        return None
    head = _HEAD.match(raw)
    if head is None or head[2] != version:
        return None
    return Envelope(int(head[1]), head[2], raw[head.end() :])
