"""The keys in Redis, beside the queues themselves."""

from typing import Any

#: Hash, receipt → queue, NUL, message as it was in the queue.
UNACKED = "sekali:unacked"
#: Sorted set, the same receipts by the time of delivery (the server's clock).
UNACKED_INDEX = "sekali:unacked_index"
#: List of at most one token for each queue: somebody may look into it.
WAKE = "sekali:wake:"
#: Counter for each message (by its SHA-1) that was put back.
RETURNS = "sekali:returns:"


def wake(pipe: Any, queue: str) -> None:
    """Add to a pipeline what tells an idle worker to look into the queue."""
    pipe.rpush(WAKE + queue, "1")
    pipe.ltrim(WAKE + queue, 0, 0)
