"""Redis and Valkey as broker."""

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

from redis.exceptions import RedisError, ResponseError

from operations.broker.interface import Broker, BrokerUnavailable, DeadMessage, Mark, Outgoing
from operations.broker.messages import Template
from operations.broker.names import DEAD_LETTER
from operations.broker.redis_client import connect
from operations.broker.redis_transport.names import wake

MARK_KEY = "sekali:mark"

#: KEYS[1]  the mark          ARGV[1]  a number to write
#: Writes the number unless the mark holds a higher one. What is no number is no mark.
_WRITE_MARK = """
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' or #held > 18 or not string.find(held, '^%d+$')
    or tonumber(ARGV[1]) > tonumber(held)
then
    redis.call('SET', KEYS[1], ARGV[1])
end
"""


class RedisBroker(Broker):
    """A queue is a list; what a worker holds stands in one hash for all queues."""

    @cached_property
    def _client(self) -> Any:
        return connect(self.url)

    def _send(self, messages: list[Outgoing]) -> None:
        queues: dict[str, list[str]] = defaultdict(list)
        for message in messages:
            queues[message.template.queue].append(_envelope(message))
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for queue, items in queues.items():
                pipe.lpush(queue, *items)
                wake(pipe, queue)
            pipe.execute()

    def ready(self, queue: str) -> int:
        with _translated():
            return int(self._client.llen(queue))

    def read_mark(self, confirmed: int | None = None) -> Mark:  # noqa: ARG002
        with _translated():
            return Mark(self._number_held(), str(self._client.info("server")["run_id"]))

    def _number_held(self) -> int | None:
        """None also when somebody has put something else in its place."""
        try:
            held = self._client.get(MARK_KEY) or b""
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return None
            raise
        return int(held) if held.isdigit() and len(held) <= 18 else None

    def write_mark(self, number: int) -> None:
        with _translated():
            self._client.eval(_WRITE_MARK, 1, MARK_KEY, str(number))

    @contextmanager
    def dead_messages(self, limit: int) -> Iterator[Sequence[DeadMessage]]:
        entries: list[bytes]
        with _translated():
            entries = self._client.lrange(DEAD_LETTER, -limit, -1)
        yield [_dead_message(entry) for entry in reversed(entries)]
        if entries:
            with _translated(), self._client.pipeline(transaction=False) as pipe:
                for entry in entries:
                    pipe.lrem(DEAD_LETTER, -1, entry)
                pipe.execute()

    def ping(self) -> None:
        with _translated():
            self._client.ping()


# --- messages as kombu writes them into a list -----------------------------------------

_BODY, _REQUEST = "@body@", "@request@"

#: What the transport's scripts call a message.
_RECEIPT = re.compile(r"[0-9a-f]{32}:\d{1,9}")


def _envelope(message: Outgoing) -> str:
    body = base64.b64encode(message.template.body_of(message.id)).decode()
    return (
        _envelope_of(message.template)
        .replace(_BODY, body)
        .replace(json.dumps(_REQUEST), json.dumps(message.request_id))
        .replace(message.template.placeholder, message.id)
        .replace(message.template.never, message.sent_at)
    )


@cache
def _envelope_of(template: Template) -> str:
    return json.dumps(
        {
            "body": _BODY,
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": template.headers_of(template.placeholder, _REQUEST),
            "properties": {
                "correlation_id": template.placeholder,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": template.queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": template.placeholder,
            },
        }
    )


def _dead_message(entry: bytes) -> DeadMessage:
    """An entry as the transport's scripts write it, or whatever else somebody put there."""
    head, _, raw = entry.partition(b"\n")
    try:
        about: dict[str, Any] = json.loads(head)
        id, queue, why = str(about["id"]), str(about["queue"]), str(about["why"])
        if not _RECEIPT.fullmatch(id):
            raise ValueError(id)
    except (ValueError, TypeError, KeyError, RecursionError):
        id, queue, why = hashlib.sha256(entry).hexdigest(), DEAD_LETTER, "put there directly"
        raw = entry
    try:
        message = json.loads(raw)
        body, headers, properties = message["body"], message["headers"], message["properties"]
        match properties.get("body_encoding"):
            case "base64":
                body = base64.b64decode(body, validate=True)
            case None | "utf-8":
                body = body.encode()
            case encoding:
                raise ValueError(encoding)
        known = {"body", "headers", "properties"}
        properties = {k: v for k, v in message.items() if k not in known} | properties
        if not isinstance(headers, dict):
            raise TypeError(headers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return DeadMessage(id=id, body=raw, queue=queue, why=why)
    return DeadMessage(
        id=id, body=body, queue=queue, headers=headers, properties=properties, why=why
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
