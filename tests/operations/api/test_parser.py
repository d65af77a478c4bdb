"""JSON, read strictly."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from operations.api.parser import DEEPEST, load

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4), st.booleans())
def test_what_is_json_is_read_as_json(value: dict[str, Any], ascii_only: bool) -> None:
    """A6: also when every character is escaped."""
    assert load(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": "é"}'.encode("latin-1"), "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b"[]", "object"),
        (b"1", "object"),
        (b'"a"', "object"),
        (b"null", "object"),
        (b'{"a": 1, "a": 1}', "twice"),
        (b'{"a": 1, "\\u0061": 2}', "twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": Infinity}', "Infinity"),
        (b'{"a": [-Infinity]}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": -1e999}', "too large"),
        (b'{"a": %s}' % (b"9" * 101), "digits"),
        (b'{"a": %s}' % (b"9" * 10_000), "digits"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b'{"a\\u0000": 1}', "NUL"),
        (b'{"a": ["x", {"y": "\\u0000"}]}', "NUL"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\\udc00\\ud800"}', "surrogate"),
        (b'{"\\ud83d": 1}', "surrogate"),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"a": %s%s}' % (b"[" * 10_000, b"]" * 10_000), "deeper"),
        (b'{"a": %s%s}' % (b"[" * DEEPEST, b"]" * DEEPEST), "deeper"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "deeper"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(body: bytes, why: str) -> None:
    """A2 A6: with a reason that names it."""
    with pytest.raises(ParseError, match=why):
        load(body)


def test_nesting_up_to_the_limit_and_pairs_of_surrogates_are_fine() -> None:
    """A6"""
    inner = b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1)
    assert load(b'{"a": %s, "b": "\\ud83d\\ude00"}' % inner)["b"] == "😀"


@given(st.binary())
def test_no_bytes_lead_to_another_exception(body: bytes) -> None:
    """A2"""
    with contextlib.suppress(ParseError):
        load(body)
