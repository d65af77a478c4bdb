"""A plain Celery application with one leased task, as somebody else's project has it.

``LOCKS_URL`` and ``BROKER_URL`` are read from the environment.
"""

import os
import time

import redis
from celery import Celery
from django.conf import settings

if not settings.configured:
    settings.configure(LOCKS_URL=os.environ["LOCKS_URL"])

from locks import Lease, LeaseHeld, LeaseUnavailable, leased

app = Celery("somebody-else", broker=os.environ.get("BROKER_URL"), set_as_current=False)
app.conf.update(task_default_queue="leased", broker_connection_retry_on_startup=True)


@app.task(  # type: ignore[untyped-decorator]
    autoretry_for=(LeaseHeld, LeaseUnavailable), max_retries=50, default_retry_delay=0.1
)
@leased("report:{report_id}", ttl=2, fenced=False)
def build_report(report_id: int, log: str, *, lease: Lease) -> None:
    """Write down when it began and ended, in the list ``log`` of the lease server."""
    with redis.Redis.from_url(os.environ["LOCKS_URL"]) as client:
        client.rpush(log, f"begin {report_id}")
        time.sleep(0.2)
        lease.check()
        client.rpush(log, f"end {report_id}")
