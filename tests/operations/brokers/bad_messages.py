"""Messages that no worker can handle, one of each sort, for any broker."""

import base64
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import amqp

from operations.broker.messages import template

KIND = "scripted.local"
UNKNOWN = "elsewhere.send_mail"


@dataclass(frozen=True)
class Bad:
    """A message by its parts, as any broker takes it; ``raw`` is for a list in Redis only.

    ``error`` is what its dead letter is called.
    """

    name: str
    error: str
    body: bytes = b""
    headers: Any = field(default_factory=dict)
    content_type: str = "application/json"
    raw: bytes | None = None

    @property
    def as_item(self) -> bytes:
        """As kombu writes it into a list."""
        if self.raw is not None:
            return self.raw
        return json.dumps(
            {
                "body": base64.b64encode(self.body).decode(),
                "headers": self.headers,
                "content-type": self.content_type,
                "content-encoding": "utf-8",
                "properties": {
                    "body_encoding": "base64",
                    "delivery_info": {"exchange": "", "routing_key": KIND},
                    "delivery_tag": str(uuid.uuid4()),
                    "delivery_mode": 2,
                    "priority": 0,
                },
            }
        ).encode()

    def publish(self, channel: amqp.Channel, queue: str) -> None:
        """Send it through RabbitMQ."""
        message = amqp.Message(
            self.body,
            content_type=self.content_type,
            content_encoding="utf-8",
            application_headers=self.headers,
            delivery_mode=2,
        )
        channel.basic_publish(message, exchange="", routing_key=queue)


def _bad(name: str, error: str, *, body: Any = None, kind: str = KIND, **headers: Any) -> Bad:
    """A good message of an operation that does not exist, changed in one way."""
    id = str(uuid.uuid4())
    good = template(KIND)
    made = good.headers_of(id, "") | {"task": kind} | headers
    made = {key: value for key, value in made.items() if value != "absent"}
    content = good.body_of(id) if body is None else body
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    return Bad(name, error, content, made)


def everywhere() -> list[Bad]:
    """What can be sent through every broker."""
    id = str(uuid.uuid4())
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    good = template(KIND).headers_of(id, "")
    return [
        _bad("no such operation", "NoSuchOperation"),
        _bad("unknown task", "UnknownTask", kind=UNKNOWN),
        _bad("unknown task, other arguments", "UnknownTask", kind=UNKNOWN, body=[[1], {}, embed]),
        _bad("unknown task, unprintable", "UnknownTask", kind="a\x00b"),
        _bad("no id", "NoTaskId", id="absent"),
        _bad("id is a number", "NoTaskId", id=7),
        _bad("no task", "NoTask", task="absent"),
        _bad("task is a number", "NoTask", task=7),
        _bad("bytes for a body", "UnreadableBody", body=b"\xff\xfe\x00garbage"),
        _bad("empty body", "UnreadableBody", body=b" "),
        _bad("deep body", "UnreadableBody", body=b"[" * 5000),
        _bad("body is an object", "NotATaskBody", body={"id": id}),
        _bad("body is one list", "NotATaskBody", body=[[id]]),
        _bad("args is a text", "NotATaskBody", body=[id, {}, embed]),
        _bad("kwargs is a list", "NoSuchOperation", body=[[id], [], embed]),
        _bad("embed is a text", "NoSuchOperation", body=[[id], {}, "x"]),
        _bad("no arguments", "BadArguments", body=[[], {}, embed]),
        _bad("arguments are no id", "BadArguments", body=[["me"], {}, embed]),
        _bad("too many arguments", "BadArguments", body=[[id, id], {}, embed]),
        _bad("bad eta", "NoSuchOperation", eta="tomorrow"),
        _bad("bad expires", "NoSuchOperation", expires=[1]),
        _bad("bad time limits", "NoSuchOperation", timelimit="long"),
        _bad("bad retries", "NoSuchOperation", retries="some"),
        _bad("bad stamps", "NoSuchOperation", stamped_headers=5, stamps=6),
        _bad("unknown compression", "NoSuchOperation", compression="x-none"),
        _bad("broken compression", "NoSuchOperation", compression="bzip2"),
        _bad("too large", "MessageTooLarge", body=[["x" * 300_000], {}, embed]),
        Bad(
            "pickle", "ContentRefused", b"cos\nsystem\n", good, content_type="application/x-python"
        ),
        Bad("text", "ContentRefused", b"hello", good, content_type="text/plain"),
        Bad("no headers", "NoTask", b'{"hello": 1}'),
    ]


def in_lists() -> list[Bad]:
    """What only a list in Redis can hold."""
    good = json.loads(everywhere()[0].as_item)

    def changed(name: str, error: str, **parts: Any) -> Bad:
        item = {key: value for key, value in (good | parts).items() if value != "absent"}
        return Bad(name, error, raw=json.dumps(item).encode())

    return [
        Bad("no JSON", "NoTask", raw=b"\xff\x00\x01garbage\n{"),
        Bad("empty", "NoTask", raw=b""),
        Bad("NUL", "NoTask", raw=b"\x00"),
        Bad("a number", "NoTask", raw=b"42"),
        Bad("a list", "NoTask", raw=b"[1, 2]"),
        Bad("deep", "NoTask", raw=b"[" * 100_000),
        Bad("large", "MessageTooLarge", raw=b"x" * 1_000_000),
        changed("no properties", "NoTask", properties="absent"),
        changed("properties is a list", "NoTask", properties=[]),
        changed("body is no base64", "NoTask", body="###"),
        changed("body is a number", "NoTask", body=5),
        changed("no body", "NoTask", body="absent"),
        changed("headers is a list", "NoTask", headers=[1]),
        changed("headers is null", "NoTask", headers=None),
        changed("unknown encoding", "NoTask", properties={"body_encoding": "rot13"}),
    ]
