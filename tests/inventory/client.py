"""The API in the test's own process, for tests of what it answers."""

import json
import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from operations import tokens


class Api:
    """The API as one user sees it. Names of headers are written with underscores."""

    def __init__(self, username: str) -> None:
        user, _ = User.objects.get_or_create(username=username)
        self.user = user.pk
        token = tokens.issue(user, "test", timedelta(hours=1))
        self.authorization = f"Bearer {token}"
        self._client = Client(headers={"Authorization": self.authorization})

    def get(self, path: str, **headers: str) -> Any:
        return self._client.get(f"/api/v1/{path}", headers=spelled(headers))

    def head(self, path: str, **headers: str) -> Any:
        return self._client.head(f"/api/v1/{path}", headers=spelled(headers))

    def post(self, path: str, body: object = None, **headers: str) -> Any:
        sent = {"Idempotency-Key": uuid.uuid4().hex, **spelled(headers)}
        return self._client.post(
            f"/api/v1/{path}",
            json.dumps({} if body is None else body),
            content_type="application/json",
            headers=sent,
        )


def spelled(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
