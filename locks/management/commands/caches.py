"""``manage.py caches``: what is cached, and how that goes."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from locks.cache import CacheEntry, entries, records
from locks.cache.metrics import totals
from locks.cache.store import Store

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
#: The counters that people look at first; --json has all of them.
_COUNTERS = (
    "hit",
    "stale",
    "miss",
    "unavailable",
    "load",
    "load_error",
    "overloaded",
    "rejected",
    "invalidated",
    "invalidation_failed",
    "reapplied",
    "audited",
    "mismatched",
)


class Command(BaseCommand):
    help = "List what is cached: where it comes from, how old it may be, what invalidates it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "entries", nargs="*", metavar="ENTRY", help="only these; by default all"
        )
        parser.add_argument(
            "--state",
            action="store_true",
            help="instead, the counters of all processes, whether the cache answers, and how many "
            "invalidations wait, since when; fails if it does not answer, or they wait too long",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="for programs, and with more in it")
        form.add_argument("--markdown", action="store_true", help="the table of the docs")

    def handle(self, *_args: Any, **options: Any) -> None:
        chosen = _chosen(options["entries"])
        if options["state"]:
            if options["markdown"]:
                raise CommandError("--markdown is for the list of entries, not for --state.")
            self._state(chosen, as_json=options["json"])
        elif options["json"]:
            self.stdout.write(json.dumps([_facts(entry) for entry in chosen], indent=2))
        else:
            self._table(_COLUMNS, [_cells(entry) for entry in chosen], options["markdown"])

    def _state(self, chosen: Sequence[CacheEntry[Any]], *, as_json: bool) -> None:
        counted = totals()
        answers = not Store().is_resting
        try:
            pending = records.pending()
        except DatabaseError as error:
            raise CommandError(f"The database does not answer: {error}") from error
        counters = {entry.name: counted.get(entry.name, {}) for entry in chosen}
        if as_json:
            state = {
                "answers": answers,
                "pending": {
                    "number": pending.number,
                    "oldest": pending.oldest,
                    "late": pending.is_late,
                },
                "counters": counters,
            }
            self.stdout.write(json.dumps(state, indent=2))
        else:
            self._table(("entry", *_COUNTERS), [_row(*one) for one in counters.items()])
            self.stdout.write(f"\nInvalidations that wait: {pending.number}", ending="")
            self.stdout.write(f", the oldest for {pending.oldest:.1f} s" if pending.number else "")
        if not answers:
            raise CommandError("The cache does not answer; only this process's counters are told.")
        if pending.is_late:
            raise CommandError(
                f"Invalidations wait for {pending.oldest:.0f} s: the cache refuses writes, or no "
                "dispatcher runs. Old values may be told."
            )

    def _table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool = False
    ) -> None:
        if markdown:
            for cells in [columns, ["---"] * len(columns), *rows]:
                self.stdout.write(f"| {' | '.join(cells)} |")
            return
        table = [columns, *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for cells in table:
            line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self.stdout.write(line.rstrip())


def _chosen(names: Sequence[str]) -> list[CacheEntry[Any]]:
    known = {entry.name: entry for entry in entries()}
    if unknown := [name for name in names if name not in known]:
        raise CommandError(f"{unknown[0]!r} is no cache entry. There are: {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names or known)]


def _row(name: str, counted: Mapping[str, int]) -> tuple[str, ...]:
    return name, *(str(counted.get(counter, 0)) for counter in _COUNTERS)


def _facts(entry: CacheEntry[Any]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "key": entry.keys.prefix + (f":{entry.key_template}" if entry.key_template else ""),
        "dimensions": list(entry.keys.dimensions),
        "declared_in": entry.declared_in,
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
