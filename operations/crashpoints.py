"""Named places at which tests kill or stop this very process.

Inert unless ``CRASH_DIR`` is set when the process starts. Then reaching the point
``name`` looks for a file of that name in the directory and takes it away; whoever took
it carries out what the file says: ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP)
or ``kill-parent`` (SIGKILL to the parent, then to this process). A test thus kills one
process, once, at an exact line, without restarting anything to arm it.
"""

import os
import signal
import time
from pathlib import Path

POINTS = (
    "accept.stored",  # the row is committed, the message not yet published
    "accept.published",
    "claim.made",
    "lease.acquired",
    "handler.returned",  # the effects of an atomic handler are there, uncommitted
    "settle.committed",  # committed, the woken one not yet published
    "attempt.over",  # everything written and released, the message unacknowledged
    "dispatch.taken",  # rows are marked as sent and committed, nothing published
    "dispatch.published",
    "rescue.committed",  # rescued, the lost attempt's lease still held
    "letters.read",  # dead messages are read, nothing of them is stored
    "letters.stored",  # their letters are committed, the messages still in the queue
    "message.taken",  # by a worker's main process, which has not looked at it yet
    "broker.forgotten",  # sent_at cleared after a wipe, the new mark not yet written
    "purchase.reserved",
    "purchase.charged",  # the gateway has answered; nothing of it is stored
    "purchase.compensated",
    "sync.fetched",
)

_directory = os.environ.get("CRASH_DIR", "")


def reach(name: str) -> None:
    """Die or stop here, if a test has asked for it."""
    if _directory:
        _carry_out(name)


def _carry_out(name: str) -> None:
    armed = Path(_directory, name)
    try:
        taken = armed.rename(f"{armed}.{os.getpid()}.reached")  # exactly one process gets it
    except FileNotFoundError:
        return
    what = taken.read_text().strip()
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if what == "kill-parent":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal arrives before this ends
