"""``manage.py leases``: who holds what, and freeing one by force."""

import getpass
import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from locks.backend import HeldLease
from locks.errors import LeaseError
from locks.held import force_release, held_leases, is_old

_COLUMNS = ("key", "owner", "host", "pid", "process", "age", "left", "fence")


class Command(BaseCommand):
    help = "List the leases held now, the oldest first, or free one by force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON array instead of a table")
        parser.add_argument(
            "--older-than", type=float, default=0, metavar="SECONDS", help="only those held longer"
        )
        parser.add_argument("--release", metavar="KEY", help="free this key, whoever holds it")
        parser.add_argument("--reason", default="", help="why it is freed; goes into the log")
        parser.add_argument("--backend", choices=["valkey", "postgres"], default=None)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            if options["release"]:
                self._release(options["release"], options["reason"], options["backend"])
            else:
                leases = held_leases(options["backend"])
                self._list(
                    [lease for lease in leases if lease.age >= options["older_than"]],
                    as_json=options["json"],
                )
        except (LeaseError, ValueError) as error:
            raise CommandError(str(error)) from error

    def _release(self, key: str, reason: str, backend: str | None) -> None:
        freed = force_release(key, by=getpass.getuser(), reason=reason, backend=backend)
        if freed is None:
            self.stdout.write(f"Nobody holds {key}, or it has just changed hands.")
        else:
            self.stdout.write(f"Freed {key}, held by {freed.owner} for {freed.age:.0f} s.")

    def _list(self, leases: list[HeldLease], *, as_json: bool) -> None:
        if as_json:
            rows = [{**asdict(lease), "old": is_old(lease)} for lease in leases]
            self.stdout.write(json.dumps(rows))
            return
        table = [_COLUMNS, *(_cells(lease) for lease in leases)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for number, row in enumerate(table):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            old = number > 0 and is_old(leases[number - 1])
            self.stdout.write(self.style.WARNING(line.rstrip() + "  OLD") if old else line.rstrip())


def _cells(lease: HeldLease) -> tuple[str, ...]:
    return (
        lease.key,
        lease.owner,
        lease.host,
        str(lease.pid),
        lease.process,
        f"{lease.age:.1f} s",
        f"{lease.remaining:.1f} s",
        str(lease.fence or ""),
    )
