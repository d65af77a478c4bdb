"""Taking secrets and personal data out of what is stored or logged about a failure.

A library's message may repeat a URL with its password, a header with its token, or the
very value that it did not like. None of that belongs into a log or a dead letter.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

HIDDEN = "[hidden]"
#: A value that is shorter would be found in words that have nothing to do with it.
SHORTEST = 4

_NAMES = (
    r"pass(?:word|wd|phrase)?|pwd|secret(?:[_-]?key)?|(?:access|refresh|auth|api|client|private)"
    r"[_-]?(?:key|token|secret)|token|credentials?|authorization|cookie|cvc|cvv"
)
# Each with words of which one stands in whatever it could match, since looking for a word is
# much cheaper. No pattern may go over the same text again and again: messages come from
# outside. So every part that repeats is bounded, or begins at a word that it cannot repeat.
_PATTERNS = (
    # PEM, whole or cut off.
    (
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END|\Z)"),
        HIDDEN,
    ),
    # scheme://user:password@host
    (
        ("://",),
        re.compile(r"(://[^\s:/@'\"]{0,100}:)[^\s/@'\"]{1,300}(?=@)"),
        rf"\1{HIDDEN}",
    ),
    (
        ("bearer", "basic", "token"),
        re.compile(r"(?i)\b(bearer|basic|token)\s{1,5}[\w.~+/=-]{8,}"),
        rf"\1 {HIDDEN}",
    ),
    # JSON, headers, query strings, keyword arguments: name, separator, value.
    (
        ("pass", "pwd", "secret", "key", "token", "credential", "authoriz", "cookie", "cvc", "cvv"),
        re.compile(
            rf"(?i)(?<![a-z])((?:{_NAMES})['\"]?\s{{0,5}}[:=]\s{{0,5}}b?)"
            r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&}\)\]'\"]+)"
        ),
        rf"\1{HIDDEN}",
    ),
    # Keys that say what they are: Stripe's, GitHub's, Slack's, AWS's; JSON web tokens.
    (
        ("k_", "whsec", "gh", "xox"),
        re.compile(r"\b(?:[sr]k_(?:live|test)|whsec|gh[pousr]|xox[abprs])[_-][A-Za-z0-9_-]{6,}"),
        HIDDEN,
    ),
    (("_secret_",), re.compile(r"\b(?:pi|seti|src)_[A-Za-z0-9]{1,60}_secret_\w+"), HIDDEN),
    (("akia",), re.compile(r"\bAKIA[0-9A-Z]{16}\b"), HIDDEN),
    (("eyj",), re.compile(r"\beyJ[\w-]{5,2000}\.[\w-]{5,}(?:\.[\w-]*)?"), HIDDEN),
)
_CARD = re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d.-])")

_personal: ContextVar[tuple[str, ...]] = ContextVar("sekali_personal", default=())


@contextmanager
def hiding(values: Iterable[Any]) -> Iterator[None]:
    """Also hide these inside the block: what a kind has declared as personal.

    :param values: of payload fields; texts inside lists and objects count as well
    """
    found = {text for value in values for text in _texts(value) if len(text) >= SHORTEST}
    # The longest first, since one may be a part of another.
    token = _personal.set(tuple(sorted(found, key=len, reverse=True)))
    try:
        yield
    finally:
        _personal.reset(token)


def redact(text: str) -> str:
    """The text without secrets, and without what :func:`hiding` names."""
    for secret in _own_secrets():
        text = text.replace(secret, HIDDEN)
    for value in _personal.get():
        text = text.replace(value, HIDDEN)
    lowered = text.lower()
    for words, pattern, replacement in _PATTERNS:
        if any(word in lowered for word in words):
            text = pattern.sub(replacement, text)
    return _CARD.sub(lambda match: HIDDEN if _is_card(match[0]) else match[0], text)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            if repr(value)[1:-1] != value:
                yield repr(value)[1:-1]  # as a traceback shows it
        case bool() | None:
            return
        case int() | float():
            yield str(value)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
        case dict():
            for item in value.values():
                yield from _texts(item)


@cache
def _own_secrets() -> tuple[str, ...]:
    """The platform's own, which need no pattern."""
    urls = (settings.BROKER_URL, settings.CACHE_URL, settings.LOCKS_URL, settings.SUPPLIER_URL)
    passwords = (unquote(urlsplit(part).password or "") for url in urls for part in url.split(";"))
    secrets = {
        settings.SECRET_KEY,
        settings.STRIPE_API_KEY,
        settings.DATABASES["default"].get("PASSWORD", ""),
        *passwords,
    }
    return tuple(sorted((s for s in secrets if len(s) >= 8), key=len, reverse=True))


def _is_card(text: str) -> bool:
    """Luhn's check, which one in ten other numbers passes."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0
