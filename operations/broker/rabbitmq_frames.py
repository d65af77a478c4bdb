"""A message as the frames of AMQP, made from a template.

py-amqp encodes a third of a millisecond for each message and hands each to the socket
alone. All messages of a kind are alike but for the id and the time, whose length is always the
same: so they are encoded once, and a batch goes out in one write.
"""

import struct
from functools import lru_cache

import amqp

from operations.broker.interface import Outgoing
from operations.broker.messages import Template

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC = 60
_PUBLISH = 40
#: In the last byte of the arguments: tell when there is no such queue.
_MANDATORY = 1
_END = b"\xce"


def frames_of(message: Outgoing, channel: int, frame_max: int) -> bytes:
    """What publishes the message to its queue, through the default exchange."""
    template = message.template
    make = _encoded if message.request_id == "" else _encoded.__wrapped__
    made: bytes = make(template, message.request_id, channel, frame_max)
    made = made.replace(template.never.encode(), message.sent_at.encode())
    return made.replace(template.placeholder.encode(), message.id.encode())


@lru_cache(256)
def _encoded(template: Template, request_id: str, channel: int, frame_max: int) -> bytes:
    id = template.placeholder
    body = template.body_of(id)
    if len(body) + 8 > frame_max:
        raise ValueError(f"A message of {len(body)} bytes does not fit into a frame.")
    properties = amqp.Message(
        body,
        content_type="application/json",
        content_encoding="utf-8",
        application_headers=template.headers_of(id, request_id),
        correlation_id=id,
        delivery_mode=2,
        priority=0,
    )._serialize_properties()
    queue = template.queue.encode()
    arguments = struct.pack(f">HBB{len(queue)}sB", 0, 0, len(queue), queue, _MANDATORY)
    return b"".join(
        (
            _frame(_METHOD, channel, struct.pack(">HH", _BASIC, _PUBLISH) + arguments),
            _frame(_HEADER, channel, struct.pack(">HHQ", _BASIC, 0, len(body)) + properties),
            _frame(_BODY, channel, body),
        )
    )


def _frame(type: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", type, channel, len(payload)) + payload + _END
