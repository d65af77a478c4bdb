"""``manage.py dependencies [--json]``."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from operations import dependencies
from operations.dependencies import State, Unshared

_AWAY = (
    "The server of the shared state (LOCKS_URL) does not answer: {}. "
    "Each process judges for itself now, and nobody knows how all of them do."
)


class Command(BaseCommand):
    help = "What is called outside: breakers, retry budgets and the share of workers, as numbers."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *_: Any, **options: Any) -> None:
        away = ""
        found: list[State] = []
        try:
            found = dependencies.states()
        except Unshared as error:
            away = _AWAY.format(error.__cause__ or "it is left alone for a moment")
        if options["json"]:
            told = {"shared": not away, "dependencies": [asdict(state) for state in found]}
            self.stdout.write(json.dumps(told))
        for state in () if options["json"] else found:
            self.stdout.write(_line(state))
        if away:
            self.stderr.write(away)
            sys.exit(1)


def _line(state: State) -> str:
    words = [state.state]
    if state.state == "open":
        words.append(f"one may try in {state.opens_in:.1f} s")
    if state.recovery_rate is not None:
        words.append(f"{state.recovery_rate:g} attempts a second may pass")
    words.append(f"{state.calls_per_second:.1f} calls a second")
    if state.failure_ratio is not None:
        words.append(f"{state.failure_ratio:.0%} failed")
    words.append(f"{state.budget_left:.0f} retries left")
    words.append(f"{state.calls_under_way} under way")
    words += [
        f"{share.calls} of {share.places} places in {share.worker}"
        for share in state.workers
        if share.places
    ]
    return f"{state.name}\t{', '.join(words)}"
