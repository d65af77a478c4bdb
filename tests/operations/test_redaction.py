"""What must not be stored or logged about a failure."""

import io
import json
import logging
import sys
import time

import pytest
from django.conf import settings

from operations.executor import Outcome, execute
from operations.logs import JSONFormatter
from operations.models import Attempt, DeadLetter
from operations.redaction import HIDDEN, hiding, redact
from operations.signature import normalised
from tests.lab.accepting import accept

SECRETS = [
    ("postgresql://sekali:hunter22@db:5432/x", "hunter22"),
    ("redis://:p%40ssw0rd@cache:6379/0 refused", "p%40ssw0rd"),
    ("Authorization: Bearer abcdef.ghijkl-123", "abcdef.ghijkl-123"),
    ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ('{"password": "correct horse", "a": 1}', "correct horse"),
    ("https://x.test/?api_key=QWERTY123&b=2", "QWERTY123"),
    ("connect(user='a', password='pa, ss')", "pa, ss"),
    ("client_secret=abc123def", "abc123def"),
    ("X-Api-Key: 0123456789", "0123456789"),
    ("Set-Cookie: sessionid=xyz987", "xyz987"),
    ("Invalid API Key provided: sk_test_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"),
    ("rk_live_abcdef123456 has no permission", "abcdef123456"),
    ("pi_123_secret_456 leaked", "_secret_456"),
    ("token eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM", "eyJzdWIiOiIx"),
    ("AKIAIOSFODNN7EXAMPLE denied", "AKIAIOSFODNN7EXAMPLE"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ("card 4242 4242 4242 4242 declined", "4242 4242"),
    ("card 4000056655665556 declined", "4000056655665556"),
]
HARMLESS = [
    "operation 3f2b8f0e-6c2b-4f5e-9c55-0d1a8a4f7b11 at 2026-11-29T10:00:00Z",
    "no such sku sku-1, 12 pieces, 1234567890123",
    "The key was used for another request.",
    "connect to 10.0.0.1:5432 timed out after 3.05 s",
    "charge ch_3OaBcD9x1 of 250 eur is unknown",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_hidden(text: str, secret: str) -> None:
    """C1 H2"""
    assert secret not in redact(text)
    assert HIDDEN in redact(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_harmless_stays(text: str) -> None:
    """C1: a redacted message must still tell what happened."""
    assert redact(text) == text


def test_the_platforms_own_secrets_are_hidden_wherever_they_appear() -> None:
    """H2"""
    assert redact(f"x{settings.SECRET_KEY}y") == f"x{HIDDEN}y"


def test_declared_personal_values_are_hidden_in_the_block_only() -> None:
    """H2: also inside lists and as a traceback shows them."""
    with hiding(["Jane Doe", {"mail": ["jane@example.com"]}, "Zoë\n", "no"]):
        text = redact("Jane Doe <jane@example.com> Zoë\\n said no")
    assert text == f"{HIDDEN} <{HIDDEN}> {HIDDEN} said no"
    assert redact("Jane Doe") == "Jane Doe"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("broker", "locks")
def test_neither_attempt_nor_letter_nor_log_tells_what_is_personal() -> None:
    """C1 H2: message, traceback and log line of a real attempt that fails with the value."""
    id = accept("scripted.personal", publish=False, label="Jane Doe")
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JSONFormatter())
    logging.getLogger("operations").addHandler(handler)
    try:
        assert execute(id, "scripted.personal", process="test/1.1") is Outcome.DEAD
    finally:
        logging.getLogger("operations").removeHandler(handler)
    attempt, letter = Attempt.objects.get(), DeadLetter.objects.get()
    for text in (attempt.message, letter.message, letter.traceback, handler.stream.getvalue()):
        assert text
        assert "Jane Doe" not in text
        assert "sk_live_1234567890" not in text
    assert attempt.message == letter.message == f"sandbox: {HIDDEN} cannot be paid with {HIDDEN}"


def test_a_log_line_is_redacted_with_its_traceback() -> None:
    """H2"""
    try:
        raise ValueError("password=hunter22")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "f", 1, "token=%s", ("abc123",), sys.exc_info()
        )
    line = json.loads(JSONFormatter().format(record))
    assert line["message"] == f"token={HIDDEN}"
    assert "hunter22" not in line["traceback"]


@pytest.mark.parametrize(
    "evil",
    [
        "a-" * 20_000,
        "a." * 20_000,
        "eyJ" * 10_000,
        "eyJaaaaaa-" * 5_000,
        "://a" * 10_000,
        "pass-key-" * 5_000,
        "1 " * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 2_000,
    ],
    ids=lambda evil: evil[:6],
)
def test_no_text_takes_long(evil: str) -> None:
    """H2: messages come from outside."""
    started = time.process_time()
    redact(evil)
    normalised(evil)
    assert time.process_time() - started < 1
