"""The syntax of ``Idempotency-Key``."""

import re

LONGEST = 255

# Visible ASCII without what a list of header values could contain: two header lines reach
# the application joined by a comma, and must not become one key.
_BARE = re.compile(r"[!-~]+")
_BARE_REFUSED = frozenset(',;"')
_QUOTED = re.compile(r'"(?P<text>(?:[ !#-\[\]-~]|\\["\\])*)"(?P<parameters>.*)', re.DOTALL)
# Parameters of a structured-field item (RFC 8941, section 3.1.2).
_PARAMETERS = re.compile(
    r'(?:[ ]*;[ ]*[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[^\s",;"]+))?)*[ ]*'
)


class BadKey(ValueError):
    """The key cannot be accepted; the text says why, for the client."""


def parse(value: str | None) -> str:
    """The key in a header's value: bare, or a structured-field string in quotes.

    ``k`` and ``"k"`` are the same key, case matters, parameters after the quotes do not.

    :param value: None when there is no such header
    :returns: 1 to 255 visible ASCII characters
    :raises BadKey: it is something else
    """
    if value is None:
        raise BadKey("The header Idempotency-Key is missing.")
    key = _unquoted(value.strip(" \t"))
    if not key:
        raise BadKey("The key is empty.")
    if len(key) > LONGEST:
        raise BadKey(f"The key is longer than {LONGEST} characters.")
    if not _BARE.fullmatch(key):
        raise BadKey("A key has visible ASCII characters only, and no blanks.")
    return key


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        if _BARE_REFUSED & set(value):
            raise BadKey('A key with a comma, a semicolon or a quote must be put in quotes ("…").')
        return value
    match = _QUOTED.fullmatch(value)
    if match is None:
        raise BadKey("A key in quotes is a structured-field string; this one is malformed.")
    if not _PARAMETERS.fullmatch(match["parameters"]):
        raise BadKey("After a key in quotes only parameters may follow, and no second key.")
    return re.sub(r"\\(.)", r"\1", match["text"])
