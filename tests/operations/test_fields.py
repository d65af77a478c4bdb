"""Whole numbers, read one way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from operations.fields import IntegerField

DIGITS = "0123456789"


@given(st.integers(-(10**90), 10**90))
def test_a_whole_number_is_one_also_in_a_string(number: int) -> None:
    """A2"""
    field = IntegerField()
    assert field.run_validation(number) == field.run_validation(str(number)) == number


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_with_an_empty_fraction_is_one(number: int) -> None:
    """A6: 1 and 1.0 are the same in JSON."""
    assert IntegerField().run_validation(float(number)) == number


@given(st.text() | st.text(DIGITS + "+-_ .e٣²\n", min_size=1))
def test_of_strings_only_decimal_digits_are_read(text: str) -> None:
    """A2"""
    is_plain = text.removeprefix("-").strip(DIGITS) == "" and text.lstrip("-") != ""
    if is_plain and len(text) <= 100:
        assert IntegerField().run_validation(text) == int(text)
    else:
        with pytest.raises(ValidationError):
            IntegerField().run_validation(text)


@pytest.mark.parametrize("value", [True, False, None, 1.5, 1e300, [], {}, "1" * 101, "1_0", "--1"])
def test_anything_else_is_none(value: object) -> None:
    """A2"""
    with pytest.raises(ValidationError):
        IntegerField().run_validation(value)


def test_its_bounds_hold() -> None:
    """A2"""
    field = IntegerField(min_value=1, max_value=100)
    assert field.run_validation("100") == 100
    for value in (0, "101", 101.0):
        with pytest.raises(ValidationError):
            field.run_validation(value)
