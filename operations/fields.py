"""Fields of input that read one thing one way."""

import math
import re
from typing import Any

from rest_framework import serializers

#: Above it a number with a fraction part may stand for several whole ones.
_LARGEST_EXACT = 2**53
_LONGEST = 100
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class IntegerField(serializers.IntegerField):
    """A whole number of JSON, also as ``1.0``, or its decimal digits in a string.

    Not whatever Python takes for one: ``1_0``, ``+1``, `` 1`` or digits of other scripts.
    """

    def to_internal_value(self, data: Any) -> int:
        """
        :raises ValidationError: ``invalid``
        """
        number = _whole(data)
        if number is None:
            self.fail("invalid")
        return number


class NumberField(serializers.FloatField):
    """A finite number of JSON, or plain decimal digits in a string: ``0.5``.

    Not whatever Python takes for one: ``nan``, ``inf``, ``1e5``, ``1_0``, ``.5`` or a truth.
    """

    def to_internal_value(self, data: Any) -> float:
        """
        :raises ValidationError: ``invalid``
        """
        number = _number(data)
        if number is None:
            self.fail("invalid")
        return number


def _number(data: Any) -> float | None:
    match data:
        case bool():
            return None
        case int() | float():
            pass
        case str() if len(data) <= _LONGEST and _DECIMAL.fullmatch(data):
            pass
        case _:
            return None
    try:
        number = float(data)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(data: Any) -> int | None:
    match data:
        case bool():
            return None
        case int():
            return data
        case float() if data.is_integer() and abs(data) <= _LARGEST_EXACT:
            return int(data)
        case str() if len(data) <= _LONGEST and _WHOLE.fullmatch(data):
            return int(data)
    return None
