"""``manage.py kinds list|pause|resume|limit|accept|refuse``."""

import argparse
import getpass
import json
from dataclasses import asdict
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from operations import controls, registry
from operations.audit import Author
from operations.fields import IntegerField, NumberField
from operations.registry import UnknownKind

_CHANGES: dict[str, dict[str, Any]] = {
    "pause": {"paused": True},
    "resume": {"paused": False},
    "accept": {"accepting": True},
    "refuse": {"accepting": False},
}
_HELP = {
    "pause": "Begin nothing more of a kind; what runs goes on.",
    "resume": "Begin again what was paused.",
    "accept": "Take new operations in again.",
    "refuse": "Take no new operations in; replays are answered.",
}


class Command(BaseCommand):
    help = "Show kinds of operation and turn them down and up while everything runs."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="Every kind, its controls, what waits.")
        listing.add_argument("--json", action="store_true")
        for action in _CHANGES:
            self._add_change(actions, action, _HELP[action])
        limit = self._add_change(actions, "limit", "Begin only so many; 'none' lifts a limit.")
        limit.add_argument("--rate", type=_or_none(NumberField()), default=..., help="A second.")
        limit.add_argument(
            "--max-running", type=_or_none(IntegerField()), default=..., help="At once."
        )

    def _add_change(self, actions: Any, name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
        parser.add_argument("kinds", nargs="*", metavar="kind")
        parser.add_argument("--all", action="store_true", help="Every kind that is not critical.")
        parser.add_argument("--reason", required=True, help="Goes into the audit log.")
        parser.add_argument("--by", help="User name; by default who is logged in here.")
        parser.add_argument("--json", action="store_true")
        return parser

    def handle(self, *_: Any, **options: Any) -> None:
        action = options["action"]
        names: list[str] = []
        if action != "list":
            names = self._names(options)
            self._change(names, _values(options), options)
        self._show(names, as_json=options["json"])

    def _names(self, options: dict[str, Any]) -> list[str]:
        if bool(options["kinds"]) == options["all"]:
            raise CommandError("Name kinds, or say --all.")
        return options["kinds"] or [
            kind.name for kind in registry.kinds() if not kind.critical and not kind.compensates
        ]

    def _change(self, names: list[str], values: dict[str, Any], options: dict[str, Any]) -> None:
        author = _author(options["by"])
        try:
            for name in names:
                registry.get(name)
            for name in names:
                controls.change(name, author, options["reason"], **values)
        except UnknownKind as error:
            raise CommandError(f"There is no kind {error}.") from error
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _show(self, names: list[str], *, as_json: bool) -> None:
        found = [kind for kind in controls.report() if not names or kind.kind in names]
        if as_json:
            self.stdout.write(json.dumps([asdict(kind) for kind in found]))
            return
        for kind in found:
            words = ["accepting" if kind.accepting else "refused"]
            words += ["paused"] if kind.paused else []
            words += ["shedding"] if kind.shedding else []
            words += [f"at most {kind.rate:g}/s"] if kind.rate is not None else []
            words += [f"at most {kind.max_running} at once"] if kind.max_running else []
            words += ["critical"] if kind.critical else []
            behind = f" ({kind.behind_dead} behind dead letters)" if kind.behind_dead else ""
            self.stdout.write(
                f"{kind.kind}\t{kind.pending} pending{behind}, {kind.running} running, "
                f"oldest {kind.oldest:.0f} s\t{', '.join(words)}"
            )


def _values(options: dict[str, Any]) -> dict[str, Any]:
    if options["action"] != "limit":
        return _CHANGES[options["action"]]
    values = {name: options[name] for name in ("rate", "max_running") if options[name] is not ...}
    if not values:
        raise CommandError("Say --rate, --max-running, or both.")
    return values


def _author(username: str | None) -> Author:
    if username is None:
        return Author(f"command line: {getpass.getuser()}")
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no user {username!r}.")
    return Author(user.get_username(), user.pk)


def _or_none(field: serializers.Field[Any, Any, Any, Any]) -> Any:
    def parse(text: str) -> Any:
        if text == "none":
            return None
        try:
            return field.run_validation(text)
        except ValidationError:
            raise argparse.ArgumentTypeError(f"{text!r} is no plain number, nor 'none'.") from None

    return parse
