"""Validated input as it is stored, compared and given to handlers."""

import hashlib
import json
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from operations.errors import BadPayload
from operations.registry import Kind, Payload

#: Raise it when :func:`fingerprint` would answer otherwise for the same input. Records
#: carry the version they were made with, and are compared by that one only.
FINGERPRINT_VERSION = 1


def canonical(serializer: serializers.BaseSerializer[Any]) -> Payload:
    """The validated input of a serializer as plain JSON values, defaults filled in."""
    payload: Payload = json.loads(json.dumps(_represented(serializer, serializer.validated_data)))
    return payload


def fingerprint(kind: Kind, payload: Payload) -> str:
    """SHA-256 of what makes a request this request and no other.

    Member order, white space, escapes and ``1`` / ``1.0`` do not count, nor do incidental
    fields, nor whether a default is left out or spelled out: so a field added later with
    a default keeps the fingerprints of earlier requests.
    """
    telling = {name: value for name, value in payload.items() if name not in kind.incidental}
    without_defaults = _without_defaults(kind.serializer(), telling)
    text = json.dumps(
        _plain_numbers(without_defaults), sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def validated(kind: Kind, stored: Payload, revision: int) -> Payload:
    """A stored payload, validated again by today's serializer.

    :raises BadPayload: it is not valid any more, or was written by a newer revision
    """
    if revision > kind.payload_revision:
        raise BadPayload(
            f"The payload has revision {revision}; this worker knows {kind.payload_revision}."
        )
    serializer = kind.serializer(data=stored)
    if not serializer.is_valid():
        raise BadPayload(f"The stored payload is not valid: {json.dumps(serializer.errors)}")
    return dict(serializer.validated_data)


def _represented(serializer: serializers.BaseSerializer[Any], value: Any) -> Any:
    if not isinstance(serializer, serializers.Serializer) or value is None:
        return serializer.to_representation(value)
    represented: Payload = {}
    for name, field in serializer.fields.items():
        if field.read_only or field.source not in value:
            continue
        inner = value[field.source]
        if inner is None:
            represented[name] = None
        elif isinstance(field, serializers.Serializer):
            represented[name] = _represented(field, inner)
        else:
            represented[name] = field.to_representation(inner)
    return represented


def _without_defaults(serializer: serializers.Serializer[Any], payload: Payload) -> Payload:
    kept: Payload = {}
    for name, value in payload.items():
        field = serializer.fields[name]
        if isinstance(field, serializers.Serializer) and isinstance(value, dict):
            kept[name] = _without_defaults(field, value)
        elif field.default is empty or value != _represented_default(field):
            kept[name] = value
    return kept


def _represented_default(field: serializers.Field[Any, Any, Any, Any]) -> Any:
    default = field.default() if callable(field.default) else field.default
    return None if default is None else field.to_representation(default)


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain_numbers(item) for name, item in value.items()}
    return value
