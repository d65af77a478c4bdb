"""Bearer tokens, of which only the digest is stored."""

import hashlib
from typing import ClassVar

from django.conf import settings
from django.db import models


def digest(token: str) -> str:
    """SHA-256 of a token. Tokens are long and random, so no salt or stretching is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


class ApiToken(models.Model):
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user_id}"
