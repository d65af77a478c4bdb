"""From the broker's dead letter queue into the table of dead letters.

A message is taken off the queue only after its letter is committed, and a letter knows
which message it is of: dying in between loses nothing and doubles nothing. While no
dispatcher runs the letters wait in the queue.
"""

import json
import logging
import math
import time
from typing import Any

from django.conf import settings
from django.db import DataError, connection

from operations import verbs
from operations.broker import Broker, DeadMessage
from operations.classify import MESSAGE_LIMIT, storable
from operations.crashpoints import reach
from operations.diagnosis import Diagnosis, diagnose
from operations.endings import Failure
from operations.outcomes import Category
from operations.redaction import redact
from operations.signature import signature

log = logging.getLogger(__name__)

#: Messages read at once.
BATCH = 20
#: Batches in one go.
ROUNDS = 50
#: Seconds until the next look when one has failed.
AFTER_FAILURE = 5.0
#: Headers are nested so deep at most; what is deeper is kept as text.
DEPTH = 50

_INSERT = """
INSERT INTO operations_deadletter
    (body, headers, queue, message_id, kind, idempotency_key, attempts, category, dependency,
     error_type, message, traceback, signature, state, created_at, reason)
VALUES (%(body)s, %(headers)s::jsonb, %(queue)s, %(message_id)s, %(kind)s, '', 0, 'unroutable',
    '', %(error_type)s, %(message)s, '', %(signature)s, 'open', statement_timestamp(), '')
ON CONFLICT (message_id) WHERE message_id <> '' DO NOTHING
"""


class Recorder:
    """Looks into the dead letter queue every now and then. Several may."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next_look = 0.0

    def look(self) -> int:
        """Record what is there, if it is time to look. Returns how many messages that were.

        :raises BrokerUnavailable: it does not answer
        """
        if time.monotonic() < self._next_look:
            return 0
        # A broker that does not answer is asked less often: rescues wait meanwhile.
        self._next_look = time.monotonic() + AFTER_FAILURE
        total = 0
        for _ in range(ROUNDS):
            with self._broker.dead_messages(BATCH) as messages:
                if messages:
                    reach("letters.read")
                for message in messages:
                    _record(message)
                if messages:
                    reach("letters.stored")
            total += len(messages)
            if len(messages) < BATCH:
                break
        self._next_look = time.monotonic() + settings.SEKALI_RECORD_INTERVAL
        return total


def _record(message: DeadMessage) -> None:
    if message.expired:
        # Its sender did not want it to be handled any more.
        log.info("A message in %s expired unread.", message.queue)
        return
    found = diagnose(message)
    if found.operation is not None and _send_again(found):
        return
    log.error("A message in %s is recorded as a dead letter: %s", message.queue, found.detail)
    detail = found.detail if not message.why else f"{found.detail} ({message.why})"
    parameters = {
        "body": message.body,
        "headers": json.dumps(
            _plain({"headers": message.headers, "properties": message.properties})
        ),
        "queue": storable(message.queue)[:255],
        "kind": storable(found.task)[:100],
        "error_type": found.error_type,
        "message": storable(redact(detail))[:MESSAGE_LIMIT],
        "signature": signature(Category.UNROUTABLE, found.error_type, found.detail, ""),
    }
    try:
        _insert_once(message, parameters)
    except DataError as error:
        # The bytes are what matters; the rest is only for the eye.
        log.exception("Not all of a dead letter can be stored.")
        unreadable = {"headers": None, "queue": "", "kind": "", "message": type(error).__name__}
        _insert_once(message, parameters | unreadable)


def _insert_once(message: DeadMessage, parameters: dict[str, Any]) -> None:
    copies = 0
    while not _insert(parameters, message.id if copies == 0 else f"{message.id}:{copies}"):
        if not message.is_first:
            break  # recorded by whoever died before taking it off
        copies += 1


def _insert(parameters: dict[str, Any], message_id: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, parameters | {"message_id": message_id})
        return bool(cursor.rowcount)


def _send_again(found: Diagnosis) -> bool:
    """The row is the truth: if it is there, it is sent again, and has no use for the message."""
    assert found.operation is not None
    too_long = verbs.set_aside(found.operation, found.task)
    if too_long is None:
        return False
    log.warning("A message of %s came to nothing; it is sent again.", found.operation)
    if too_long:
        message = "Its messages came to nothing for too long."
        failure = Failure(
            Category.UNROUTABLE,
            "MessagesComeToNothing",
            message,
            signature=signature(Category.UNROUTABLE, "MessagesComeToNothing", message, found.task),
        )
        # What is woken by that is found by its ``due_at``.
        verbs.give_up_waiting(found.operation, failure)
    return True


def _plain(value: Any, depth: int = 0) -> Any:
    """As PostgreSQL can hold it in a column of JSON."""
    match value:
        case dict() | list() | tuple() if depth == DEPTH:
            return storable(_as_text(value))
        case dict():
            return {storable(str(name)): _plain(item, depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item, depth + 1) for item in value]
        case bytes() | bytearray():
            return storable(bytes(value).decode("utf-8", "backslashreplace"))
        case bool() | int() | None:
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            return storable(str(value))


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        return "nested too deep"
