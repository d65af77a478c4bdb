"""``manage.py tokens issue|list|revoke``."""

import argparse
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from operations import tokens
from operations.models import ApiToken


class Command(BaseCommand):
    help = "Issue, list and revoke the bearer tokens of the API."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        issue = actions.add_parser("issue", help="Print a new token, once.")
        issue.add_argument("username")
        issue.add_argument("--name", default="command line", help="What the token is for.")
        issue.add_argument("--days", type=float, default=90, help="Its lifetime (default 90).")
        listing = actions.add_parser("list", help="List tokens, without their secrets.")
        listing.add_argument("username", nargs="?")
        revoke = actions.add_parser("revoke", help="Make a token worthless.")
        revoke.add_argument("id", type=int, help="As shown by 'list'.")

    def handle(self, *_: Any, **options: Any) -> None:
        match options["action"]:
            case "issue":
                self._issue(options["username"], options["name"], options["days"])
            case "list":
                self._list(options["username"])
            case "revoke":
                self._revoke(options["id"])

    def _issue(self, username: str, name: str, days: float) -> None:
        user = get_user_model().objects.filter(username=username).first()
        if user is None:
            raise CommandError(f"There is no user {username!r}.")
        try:
            self.stdout.write(tokens.issue(user, name, timedelta(days=days)))
        except (ValueError, OverflowError) as error:
            raise CommandError(str(error)) from error

    def _list(self, username: str | None) -> None:
        found = ApiToken.objects.select_related("user").order_by("pk")
        if username:
            found = found.filter(user__username=username)
        for token in found:
            if token.revoked_at is not None:
                state = f"revoked {token.revoked_at:%Y-%m-%d}"
            elif token.expires_at <= timezone.now():
                state = f"expired {token.expires_at:%Y-%m-%d}"
            else:
                state = f"until {token.expires_at:%Y-%m-%d}"
            self.stdout.write(f"{token.pk}\t{token.user.get_username()}\t{token.name}\t{state}")

    def _revoke(self, id: int) -> None:
        if not tokens.revoke(id):
            raise CommandError(f"There is no token {id} that could be revoked.")
        self.stdout.write(f"Token {id} is revoked.")
