"""The holder's own clock.

It must go on while the machine sleeps or a virtual machine is suspended, because the
server's clock does. On Linux ``CLOCK_MONOTONIC`` stops then, ``CLOCK_BOOTTIME`` does not.
"""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds since some fixed instant; never goes backward."""
    return time.clock_gettime(_CLOCK)
