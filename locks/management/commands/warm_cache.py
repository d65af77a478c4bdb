"""``manage.py warm_cache``: load what will be asked for most, before it is."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from locks.cache import CacheEntry, entries
from locks.cache.errors import CacheAway
from locks.cache.warming import Warmed, warm


class Command(BaseCommand):
    help = (
        "Load the hot keys that cache entries declare, as far as they are not cached: before a "
        "rush, or after the cache was emptied. Fails if they are not cached afterwards."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "entries", nargs="*", metavar="ENTRY", help="a name that `caches` lists; by default all"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *_args: Any, **options: Any) -> None:
        warmed = {entry.name: self._warm(entry) for entry in _chosen(options["entries"])}
        if options["json"]:
            told = {name: asdict(one) for name, one in warmed.items()}
            self.stdout.write(json.dumps(told, indent=2))
        else:
            for name, one in warmed.items():
                self.stdout.write(
                    f"{name}: {one.hot} hot, {one.before} were cached, {one.cached} are"
                )
        if short := [name for name, one in warmed.items() if not one.is_complete]:
            raise CommandError(
                f"Not all of {', '.join(short)} is cached: the cache stores nothing, or it was "
                "invalidated meanwhile. See the log."
            )

    def _warm(self, entry: CacheEntry[Any]) -> Warmed:
        try:
            return warm(entry)
        except CacheAway as error:
            raise CommandError(f"The cache does not answer: {error}") from error
        except Exception as error:  # whatever a loader raises; --traceback tells more
            raise CommandError(
                f"{entry.name} cannot be loaded: {type(error).__name__}: {error}"
            ) from error


def _chosen(names: list[str]) -> list[CacheEntry[Any]]:
    hot = {entry.name: entry for entry in entries() if entry.hot is not None}
    for name in names:
        if name not in hot:
            known = any(entry.name == name for entry in entries())
            what = "declares no hot keys" if known else "is no cache entry"
            raise CommandError(f"{name!r} {what}. Those with hot keys: {', '.join(hot) or 'none'}.")
    return [hot[name] for name in dict.fromkeys(names or hot)]
