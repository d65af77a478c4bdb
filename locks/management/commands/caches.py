"""``manage.py caches``: what is cached, and how that goes."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from locks.cache import CacheEntry, entries, records
from locks.cache.metrics import totals

_COLUMNS = (
    "entry",
    "depends on",
    "source of truth",
    "fresh",
    "served stale",
    "tolerated",
    "invalidated by",
    "without the cache",
)


class Command(BaseCommand):
    help = "List what is cached: where it comes from, how old it may be, what invalidates it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="one JSON array")
        form.add_argument("--markdown", action="store_true", help="the table of the docs")
        form.add_argument(
            "--state",
            action="store_true",
            help="instead, as JSON: all counters, and the invalidations that wait",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["state"]:
            pending = records.pending()
            state = {
                "counters": totals(),
                "pending": {"number": pending.number, "oldest": pending.oldest},
            }
            self.stdout.write(json.dumps(state, indent=2))
        elif options["json"]:
            self.stdout.write(json.dumps([_facts(entry) for entry in entries()], indent=2))
        else:
            self._table([_cells(entry) for entry in entries()], markdown=options["markdown"])

    def _table(self, rows: list[tuple[str, ...]], *, markdown: bool) -> None:
        if markdown:
            for cells in [_COLUMNS, tuple("---" for _ in _COLUMNS), *rows]:
                self.stdout.write(f"| {' | '.join(cells)} |")
            return
        table = [_COLUMNS, *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for cells in table:
            line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self.stdout.write(line.rstrip())


def _facts(entry: CacheEntry[Any]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "key": entry.keys.prefix + (f":{entry.key_template}" if entry.key_template else ""),
        "dimensions": list(entry.keys.dimensions),
        "source": entry.source,
        "ttl": entry.ttl,
        "jitter": entry.jitter,
        "stale": entry.stale,
        "negative": entry.negative,
        "tolerates": entry.tolerates,
        "versioned": bool(entry.version_key),
        "invalidated_by": sorted(entry.invalidated_by),
        "fallback": entry.fallback,
        "hot": entry.hot is not None,
    }


def _cells(entry: CacheEntry[Any]) -> tuple[str, ...]:
    fresh = f"{entry.ttl:g} s"
    if entry.negative:
        fresh += f"; that there is nothing: {entry.negative:g} s"
    return (
        entry.name,
        ", ".join(entry.keys.dimensions) or "nothing",
        entry.source,
        fresh,
        f"{entry.stale:g} s more" if entry.stale else "never",
        f"{entry.tolerates:g} s",
        ", ".join(sorted(entry.invalidated_by)) or "nothing",
        entry.fallback,
    )
