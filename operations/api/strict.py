"""What a serializer does not know is an error, not a thing to skip.

A misspelt member that is silently dropped would run the operation with a default that
the client did not mean.
"""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

_UNKNOWN = ErrorDetail("There is no such member.", code="unknown")


def validate(*parts: serializers.Serializer[Any]) -> None:
    """Validate serializers, look for unknown members, and tell about all of it at once.

    :raises ValidationError: field errors
    """
    errors: dict[str, Any] = {}
    for serializer in parts:
        serializer.is_valid()
        errors |= unknown_members(serializer, serializer.initial_data)
        errors |= serializer.errors
    if errors:
        raise ValidationError(errors)


def unknown_members(
    serializer: serializers.Serializer[Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Errors for the members that the serializer, or one inside it, does not have."""
    errors: dict[str, Any] = {}
    fields = {name: field for name, field in serializer.fields.items() if not field.read_only}
    for name, value in data.items():
        if name not in fields:
            errors[name] = [_UNKNOWN]
        elif inner := _inside(fields[name], value):
            errors[name] = inner
    return errors


def no_query(request: Request) -> None:
    """
    :raises ValidationError: there are query parameters
    """
    if request.query_params:
        unknown = ErrorDetail("There is no such query parameter.", code="unknown")
        raise ValidationError({name: [unknown] for name in request.query_params})


def body_of(request: Request) -> dict[str, Any]:
    """The members of the body; an empty body has none.

    :raises ParseError: it cannot be read
    :raises UnsupportedMediaType: it is not JSON
    """
    data = request.data
    # A parser of ours reads an object; an empty body may come as an empty form.
    return dict(data) if isinstance(data, dict) else {}


def _inside(field: Any, value: Any) -> dict[Any, Any]:
    if isinstance(field, serializers.Serializer) and isinstance(value, dict):
        return unknown_members(field, value)
    child = getattr(field, "child", None)
    if isinstance(child, serializers.Serializer) and isinstance(value, list):
        found = {
            number: unknown_members(child, item)
            for number, item in enumerate(value)
            if isinstance(item, dict)
        }
        return {number: inner for number, inner in found.items() if inner}
    return {}
