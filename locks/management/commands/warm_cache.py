"""``manage.py warm_cache``: load what will be asked for most, before it is."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from locks.cache import CacheEntry, entries
from locks.cache.store import Store

#: Values loaded in one go.
BATCH = 100


class Command(BaseCommand):
    help = "Load the hot keys that cache entries declare, as far as they are not cached."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("entries", nargs="*", metavar="ENTRY", help="by default all")

    def handle(self, *_args: Any, **options: Any) -> None:
        by_name = {entry.name: entry for entry in entries() if entry.hot is not None}
        names = options["entries"] or list(by_name)
        if unknown := sorted(set(names) - by_name.keys()):
            raise CommandError(f"{unknown[0]} is no cache entry with hot keys.")
        for name in names:
            self.stdout.write(f"{name}: {_warm(by_name[name])} keys")
        if Store().is_resting:
            raise CommandError("The cache does not answer.")


def _warm(entry: CacheEntry[Any]) -> int:
    assert entry.hot is not None
    hot = list(entry.hot())
    for first in range(0, len(hot), BATCH):
        entry.get_many(hot[first : first + BATCH])
    return len(hot)
