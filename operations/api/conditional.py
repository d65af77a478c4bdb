"""ETags made from versions, and the two headers that name them.

A version is a whole number that grows whenever a client could see a difference. Its
ETag is the number in quotes. What has no version gets one made from its content.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from django.utils.http import parse_etags
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from operations.api.problem import ApiProblem
from operations.fields import IntegerField

#: What is read may be kept by its owner's client, but asked for anew each time.
CACHE_CONTROL = "private, no-cache"

_LARGEST = 2**31 - 1
_OURS = re.compile(r'"(0|[1-9][0-9]{0,9})"')


def etag(version: int) -> str:
    """The strong ETag of a version, in its quotes."""
    return f'"{version}"'


def is_unchanged(request: Request, tag: str) -> bool:
    """Whether ``If-None-Match`` says that the client has what this ETag stands for."""
    known = parse_etags(request.META.get("HTTP_IF_NONE_MATCH", ""))
    return known == ["*"] or tag in [known_tag.removeprefix("W/") for known_tag in known]


def respond(
    request: Request,
    data: Mapping[str, Any],
    version: int,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """200 with the data, or 304 when the client has this version already."""
    return _respond(request, data, etag(version), headers or {})


def respond_by_content(request: Request, data: Mapping[str, Any]) -> Response:
    """200 with the data, or 304 when the client has just this already."""
    content = json.dumps(data, sort_keys=True, default=str)
    return _respond(request, data, f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"', {})


def _respond(
    request: Request, data: Mapping[str, Any], tag: str, headers: Mapping[str, str]
) -> Response:
    all_headers = {"ETag": tag, "Cache-Control": CACHE_CONTROL, **headers}
    if is_unchanged(request, tag):
        return Response(status=304, headers=all_headers)
    return Response(data, headers=all_headers)


class Expected:
    """The versions of which the client says: only if it is one of these."""

    def __init__(self, versions: frozenset[int] | None) -> None:
        """None stands for ``*``: any version, if only there is one."""
        self.versions = versions

    def allows(self, version: int | None) -> bool:
        """Whether this version, or that there is none (None), is what the client expects."""
        if version is None:
            return False
        return self.versions is None or version in self.versions

    def and_version(self, version: int) -> "Expected":
        """Both this and exactly that version."""
        mine = {version} if self.versions is None else self.versions & {version}
        return Expected(frozenset(mine))

    def stored(self) -> dict[str, Any] | None:
        """The form in which an operation remembers it: ``{"versions": [3]}``, or None."""
        return None if self.versions is None else {"versions": sorted(self.versions)}


class ExpectedVersion(serializers.Serializer[Any]):
    """The member that may stand in a body beside the input, and says what If-Match says."""

    expected_version = IntegerField(
        min_value=0, max_value=_LARGEST, required=False, help_text="As If-Match, in the body."
    )

    @classmethod
    def taken_from(cls, body: dict[str, Any]) -> "ExpectedVersion":
        """A serializer of the member, if there is one, which is then gone from the body."""
        name = "expected_version"
        return cls(data={name: body.pop(name)} if name in body else {})


def expectation(request: Request, promise: ExpectedVersion) -> Expected | None:
    """What the client expects by header, by a member of the body, or by both.

    :param promise: already validated
    :returns: None: nothing
    :raises ApiProblem: 400, ``If-Match`` is malformed
    """
    expected = if_match(request)
    version = promise.validated_data.get("expected_version")
    if version is None:
        return expected
    return (expected or Expected(None)).and_version(version)


def if_match(request: Request) -> Expected | None:
    """What ``If-Match`` says; None when there is no such header.

    Weak tags and tags that are none of ours match nothing, as RFC 9110 wants it.

    :raises ApiProblem: 400, the header is malformed
    """
    header = request.META.get("HTTP_IF_MATCH")
    if header is None:
        return None
    tags = parse_etags(header)
    if not tags:
        raise ApiProblem(400, "malformed_request", 'If-Match is * or a list of ETags, as in "3".')
    if tags == ["*"]:
        return Expected(None)
    numbers = [int(match[1]) for match in map(_OURS.fullmatch, tags) if match]
    return Expected(frozenset(number for number in numbers if number <= _LARGEST))


def require(expected: Expected, version: int | None) -> None:
    """
    :raises ApiProblem: 412, the version is not what the client expects
    """
    if not expected.allows(version):
        headers = {} if version is None else {"ETag": etag(version)}
        raise ApiProblem(
            412,
            "precondition_failed",
            "Fetch the present state and decide again.",
            headers=headers,
        )
