"""The syntax of Idempotency-Key."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.api.key import LONGEST, BadKey, parse

VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))
BARE = "".join(character for character in VISIBLE if character not in ',;"')


@given(st.text(BARE, min_size=1, max_size=LONGEST))
def test_a_bare_key_is_taken_as_it_is(key: str) -> None:
    """A2"""
    assert parse(key) == key


@given(st.text(VISIBLE, min_size=1, max_size=LONGEST))
def test_a_quoted_key_equals_the_bare_one(key: str) -> None:
    """A2: also with the characters that only quotes allow."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert parse(f'"{escaped}"') == key


@pytest.mark.parametrize("parameters", [";a", "; a=1", ';a="x,y";b=?1', ";*k.2=tok/en"])
def test_parameters_after_the_quotes_do_not_count(parameters: str) -> None:
    """A2"""
    assert parse(f'"k"{parameters}') == "k"


def test_case_matters_and_blanks_around_do_not() -> None:
    """A2"""
    assert parse(" \tKey ") == "Key" != parse("key")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "  ",
        '""',
        "a b",
        '"a b"',
        "a,b",
        "a, b",
        "a;b",
        'a"b',
        '"',
        '"a',
        'a"',
        '"a"b',
        '"a""b"',
        '"a","b"',
        '"a", "b"',
        '"a";x, "b"',
        '"a";=1',
        '"a";X=1',
        r'"a\b"',
        r'"a\"',
        "é",
        '"é"',
        "\x7f",
        "a\x00b",
        '"a\tb"',
        "k" * (LONGEST + 1),
        f'"{"k" * (LONGEST + 1)}"',
        '"k" junk',
    ],
)
def test_anything_else_is_refused(value: str | None) -> None:
    """A2"""
    with pytest.raises(BadKey):
        parse(value)


@given(st.text())
def test_no_text_leads_to_another_exception(value: str) -> None:
    """A2"""
    try:
        key = parse(value)
    except BadKey:
        return
    assert 1 <= len(key) <= LONGEST
    assert set(key) <= set(VISIBLE)


def test_two_header_lines_never_become_one_key() -> None:
    """A2: they arrive joined by a comma."""
    for first in ("a", '"a"'):
        for second in ("b", '"b"', *string.punctuation):
            with pytest.raises(BadKey):
                parse(f"{first},{second}")
            with pytest.raises(BadKey):
                parse(f"{first}, {second}")
