"""What the guard lets out."""

import asyncio
import json
from typing import Any

import pytest

from config.guard import Guard, Message, Receive, Scope, Send


def answer_with(header: tuple[bytes, bytes]) -> list[Message]:
    """What goes to the server when the application answers with this header."""
    sent: list[Message] = []

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [header]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [],
    }
    guard = Guard(application, body_limit=1024, form_limit=1024, body_timeout=1)
    asyncio.run(guard(scope, receive, send))
    return sent


@pytest.mark.parametrize("bad", [b"\x00", b"\r\nx: y", b"\n", b"\r", b"\x1b", b"\x7f"])
def test_a_header_that_cannot_be_sent_is_answered_with_a_problem(bad: bytes) -> None:
    """A1: and the connection goes on, instead of closing without a word."""
    for header in ((b"x-made", b"a" + bad), (b"x-" + bad, b"a")):
        start, body = answer_with(header)
        assert start["status"] == 500
        assert json.loads(body["body"])["type"] == "urn:sekali:problem:internal_error"


@pytest.mark.parametrize("good", [b"", b"a b", b"a\tb", b"\xe9"])
def test_any_other_header_is_let_through(good: bytes) -> None:
    """A1"""
    start, body = answer_with((b"x-made", good))
    assert start["status"] == 200
    assert (b"x-made", good) in start["headers"]
    assert body["body"] == b"ok"
