"""Idempotency keys: the first answer to a key is the answer to that key."""

import json
import time
from dataclasses import dataclass

from deploy.sandbox.database import Database
from deploy.sandbox.gateway.calls import Answer
from deploy.sandbox.gateway.errors import GatewayError

LONGEST_KEY = 255
#: A key is forgotten after this many seconds.
KEPT = 24 * 3600


@dataclass(frozen=True)
class StoredAnswer:
    """What was answered first: status, encoded body, and the id of that request."""

    status: int
    body: bytes
    request_id: str


class Keys:
    """Answers kept under their key, and the keys whose first call is still running.

    The second kind lives in memory only: a call does not outlive the process that runs it,
    and neither may its claim on the key.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: set[str] = set()

    def find(self, key: str, endpoint: str, fingerprint: str) -> StoredAnswer | None:
        """The answer stored under ``key``, or ``None`` when the key is new.

        Raises :class:`GatewayError`: 400 for a key that is too long or was used for another
        endpoint or with other parameters, 409 while its first call runs.
        """
        if len(key) > LONGEST_KEY:
            raise GatewayError(400, f"An idempotency key has at most {LONGEST_KEY} characters.")
        if key in self._running:
            raise GatewayError(
                409,
                "Another request with this idempotency key is being worked on.",
                type_=_KIND,
                code="idempotency_key_in_use",
            )
        row = self._database.row(
            "SELECT * FROM answer WHERE key = ? AND created > ?", key, time.time() - KEPT
        )
        if row is None:
            return None
        if row["endpoint"] != endpoint:
            raise GatewayError(
                400, f"Key '{key}' was first used for {row['endpoint']}.", type_=_KIND
            )
        if row["fingerprint"] != fingerprint:
            raise GatewayError(
                400, f"Key '{key}' was first used with other parameters.", type_=_KIND
            )
        return StoredAnswer(row["status"], row["body"], row["request_id"])

    def begin(self, key: str) -> None:
        """From now until :meth:`end` the key is in use."""
        self._running.add(key)

    def end(self, key: str) -> None:
        """The call that began is over."""
        self._running.discard(key)

    def store(
        self, key: str, endpoint: str, fingerprint: str, answer: Answer, request_id: str
    ) -> None:
        """Keep ``answer`` for whoever sends the key again; errors too."""
        self._database.execute(
            "INSERT OR REPLACE INTO answer (key, endpoint, fingerprint, status, body,"
            " request_id, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
            key,
            endpoint,
            fingerprint,
            answer.status,
            json.dumps(answer.content).encode(),
            request_id,
            time.time(),
        )

    def forget(self, key: str | None) -> int:
        """Drop one key's answer, or all, as time would; how many were dropped."""
        if key is None:
            return self._database.execute("DELETE FROM answer").rowcount
        return self._database.execute("DELETE FROM answer WHERE key = ?", key).rowcount


_KIND = "idempotency_error"
