"""How long to wait before the next attempt."""

import random
from collections.abc import Sequence

#: Jitter adds up to this share of the delay, so that what failed together does not
#: come back together. It never shortens a delay: an instant retry helps nobody.
JITTER = 0.25
#: The longest delay that a factor can grow to, in seconds.
LONGEST = 600.0


def delay_before_retry(backoff: Sequence[float] | float, retry: int, *, jitter: bool) -> float:
    """Seconds to wait before retry number ``retry`` (1 is the first).

    :param backoff: a schedule of delays, whose last entry repeats, or a factor that
        doubles, as Celery's ``retry_backoff``
    """
    if isinstance(backoff, int | float):
        delay = min(LONGEST, float(backoff) * 2.0 ** (retry - 1))
    else:
        delay = float(backoff[min(retry, len(backoff)) - 1])
    return delay * (1.0 + random.uniform(0, JITTER)) if jitter else delay  # noqa: S311
