"""Adds one to the tally again and again, under a lease: a process of the Jepsen pair.

Usage: ``DATABASE_URL=… python -m tests.locks.incrementer LOCKS_URL BACKEND fenced|unfenced``.
Writes ``done`` or ``refused`` for each round; ends when its standard input is closed.
"""

import select
import sys
import time

from django.conf import settings

from config import env

#: Seconds. Short, so that a stopped process outlives its lease soon.
TTL = 0.3


def main(locks_url: str, backend: str, *, fenced: bool) -> None:
    settings.configure(
        LOCKS_URL=locks_url,
        LOCKS_BACKEND=backend,
        DATABASES={"default": env.database("DATABASE_URL", "postgresql://localhost/tally")},
    )
    from django.apps import apps

    apps.populate(["locks"])
    from locks import Lease, LeaseUnavailable, fenced_update
    from tests.locks.tally import Tally

    rows = Tally.objects.all()
    while not select.select([sys.stdin], [], [], 0)[0]:
        lease = Lease("tally", ttl=TTL, wait=5)
        try:
            if not lease.acquire():
                continue
        except LeaseUnavailable:
            continue
        # Whoever reads in order to write raises the fence first: otherwise an older
        # holder could still write between this read and this write.
        if fenced and not fenced_update(rows, lease.fence):
            written = False
        else:
            value = rows.get().value
            lease_was_lost = lease.lost
            time.sleep(0.03)  # the work; whatever happens to the process, happens here
            if lease_was_lost:
                written = False
            elif fenced:
                written = fenced_update(rows, lease.fence, value=value + 1) == 1
            else:
                written = rows.update(value=value + 1) == 1
        sys.stdout.write("done\n" if written else "refused\n")
        sys.stdout.flush()
        try:
            lease.release()
        except LeaseUnavailable:
            continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], fenced=sys.argv[3] == "fenced")
