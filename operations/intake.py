"""Taking a request in: the same key, the same operation, however often it comes.

No HTTP in here: the API calls it, and so may any code that acts for a user, such as a
management command.
"""

import logging
import time
import uuid
from functools import partial
from typing import Any

from django.db import transaction
from rest_framework import serializers
from uuid_utils.compat import uuid7

from operations import admission, logs, registry, verbs
from operations.broker import get_broker
from operations.crashpoints import reach
from operations.database import DatabaseUnavailable, persistently
from operations.payload import FINGERPRINT_VERSION, canonical, fingerprint
from operations.verbs import Accepted, Envelope

log = logging.getLogger(__name__)

#: A record may be pruned between two statements; then everything starts again.
TRIES = 5
#: A refusal costs three statements; for this long (seconds) the next ones cost two.
REFUSAL_TTL = 1.0


class KeyReused(Exception):
    """The key stands for an earlier request with other input.

    :param operation: the operation that holds the key, as a client may see it
    """

    def __init__(self, operation: dict[str, Any]) -> None:
        super().__init__(operation["id"])
        self.operation = operation


class NotAccepting(Exception):
    """Nothing new of a kind is taken in: switched off, or too much is waiting.

    :param wait: seconds after which to ask again
    """

    def __init__(self, kind: str, overloaded: bool, wait: int) -> None:
        super().__init__(kind, overloaded, wait)
        self.kind = kind
        self.overloaded = overloaded
        self.wait = wait


#: Kinds that were refused, and until when (monotonic) nobody here tries to store one.
_refused: dict[str, float] = {}


def _lately_refused(kind: str) -> bool:
    return time.monotonic() < _refused.get(kind, 0)


class Submission:
    """One validated request to do something once.

    :param kind_name: a registered kind
    :param owner: primary key of the user it is done for; keys of two users are two keys
    :param key: names the logical action, 1 to 255 visible ASCII characters
    :param serializer: the kind's serializer, already found valid
    :param precondition: stored for ``claim.precondition``; not part of what makes two
        requests the same
    :raises UnknownKind: the kind is not registered here
    """

    def __init__(
        self,
        kind_name: str,
        *,
        owner: int,
        key: str,
        serializer: serializers.BaseSerializer[Any],
        precondition: dict[str, Any] | None = None,
        request_id: str = "",
        traceparent: str = "",
    ) -> None:
        self._kind = registry.get(kind_name)
        self._owner = owner
        self._key = key
        self._payload = canonical(serializer)
        self._fingerprint = fingerprint(self._kind, self._payload)
        self._request_id = request_id
        self._traceparent = traceparent
        self._id: uuid.UUID = uuid7()
        self.precondition = precondition

    def earlier(self) -> Accepted | None:
        """The operation that the key stands for already, if there is one. One statement.

        :raises KeyReused: it was another request
        :raises DatabaseUnavailable: try again later
        """
        found = persistently(
            lambda: verbs.find_by_key(owner=self._owner, kind=self._kind.name, key=self._key)
        )
        if found is not None:
            self._compare(found)
            with logs.context(operation_id=str(found.operation["id"]), idempotency_key=self._key):
                log.info("replayed")
        return found

    def accept(self) -> Accepted:
        """Store the operation and publish it, or find the one that the key stands for.

        One statement for a new key, two for a known one. Outside a transaction, or at READ
        COMMITTED: a stricter transaction of the caller cannot see who was faster.

        :raises KeyReused: the key stands for another request
        :raises NotAccepting: nothing new of this kind is taken in now
        :raises DatabaseUnavailable: try again later; nothing is half stored
        """
        for _ in range(TRIES):
            send = not get_broker().paused
            row = None
            if not _lately_refused(self._kind.name):
                row = persistently(lambda send=send: self._insert(send))  # type: ignore[misc]
            if row is not None:
                return self._accepted(row, row.pop("sent"))
            found = self.earlier()
            if found is not None:
                if found.operation["id"] != self._id:
                    return found
                # Ours: the first answer was lost together with the connection.
                return self._accepted(found.operation, send)
            self._see_whether_refused()
        raise DatabaseUnavailable("The record of the key comes and goes.")

    def _see_whether_refused(self) -> None:
        """
        :raises NotAccepting: that is why the operation was not stored
        """
        found = persistently(lambda: verbs.refused(self._kind.name))
        if found is None:
            _refused.pop(self._kind.name, None)
            return
        overloaded, wait = found
        refusal = NotAccepting(self._kind.name, overloaded, max(wait, admission.SHORTEST_WAIT))
        _refused[self._kind.name] = time.monotonic() + REFUSAL_TTL
        raise refusal

    def _insert(self, send: bool) -> dict[str, Any] | None:
        return verbs.accept(
            id=self._id,
            owner=self._owner,
            kind=self._kind.name,
            key=self._key,
            fingerprint=self._fingerprint,
            fingerprint_version=FINGERPRINT_VERSION,
            payload=self._payload,
            payload_revision=self._kind.payload_revision,
            resource=self._kind.resource_of(id=self._id, owner=self._owner, payload=self._payload),
            precondition=self.precondition,
            retention=self._kind.key_retention,
            send=send,
            request_id=self._request_id,
            traceparent=self._traceparent,
        )

    def _accepted(self, operation: dict[str, Any], send: bool) -> Accepted:
        with logs.context(operation_id=str(self._id), idempotency_key=self._key):
            reach("accept.stored")
            if send:
                envelope = Envelope(self._id, self._kind.name, operation["created_at"])
                # In a transaction of the caller: only once that is committed.
                transaction.on_commit(partial(publish, envelope))
            reach("accept.published")
            log.info("accepted")
        return Accepted(operation, False, self._fingerprint, FINGERPRINT_VERSION)

    def _compare(self, found: Accepted) -> None:
        # A fingerprint made by other rules says nothing: better a replay than a false alarm.
        same_rules = found.fingerprint_version == FINGERPRINT_VERSION
        if same_rules and found.fingerprint != self._fingerprint:
            raise KeyReused(found.operation)


def publish(envelope: Envelope) -> None:
    """Send the message of a committed operation, which whatever goes wrong cannot undo."""
    try:
        get_broker().try_publish(envelope)
    except Exception:
        log.exception("The message was not sent; the dispatcher will see to it.")


def submit(
    kind_name: str,
    *,
    owner: int,
    key: str,
    data: dict[str, Any],
    precondition: dict[str, Any] | None = None,
    request_id: str = "",
    traceparent: str = "",
) -> Accepted:
    """Validate and accept in one go, as a management command wants it.

    :param data: input as a client would send it
    :raises UnknownKind: the kind is not registered here
    :raises rest_framework.exceptions.ValidationError: the input is not valid
    :raises KeyReused: the key stands for another request
    :raises NotAccepting: nothing new of this kind is taken in now
    :raises DatabaseUnavailable: try again later; nothing is half stored
    """
    serializer = registry.get(kind_name).serializer(data=data)
    serializer.is_valid(raise_exception=True)
    return Submission(
        kind_name,
        owner=owner,
        key=key,
        serializer=serializer,
        precondition=precondition,
        request_id=request_id,
        traceparent=traceparent,
    ).accept()
