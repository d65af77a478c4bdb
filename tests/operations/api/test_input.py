"""Whatever comes in, the answer is a clear 4xx, and nothing is stored."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operations.models import IdempotencyRecord, Operation
from tests.operations.api.client import SCRIPTED, Client
from tests.operations.api.expect import problem

EMPTY = b"Content-Length: 0\r\nConnection: close\r\n\r\n"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def nothing_is_stored(api: Client) -> Iterator[None]:
    """Holds for every test here."""
    yield
    assert Operation.objects.filter(owner_id=api.user).count() == 0
    assert IdempotencyRecord.objects.filter(owner_id=api.user).count() == 0


def status_and_type(answer: bytes) -> tuple[int, str]:
    """Of a raw answer, which must be a whole problem."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer[:500]
    problem_object = json.loads(body)
    status = int(head.split()[1])
    assert problem_object["status"] == status
    return status, problem_object["type"].removeprefix("urn:sekali:problem:")


@pytest.mark.parametrize("key", ["", "a b", "a,b", "a;b", 'a"b', '"a', "k" * 256, '""', '"a", "b"'])
def test_a_bad_key_is_refused(api: Client, key: str) -> None:
    """A2"""
    problem(api.post(key=key), 400, "idempotency_key_invalid")


def test_a_missing_key_is_refused(api: Client) -> None:
    """A2 A6: a fingerprint of the payload is no substitute."""
    problem(api.http.post(SCRIPTED, json={}), 400, "idempotency_key_missing")


@pytest.mark.parametrize("value", [b"\xff", b"\xc3\xa9", b'"\xe9"', b"a\xa0b"])
def test_a_key_with_raw_bytes_is_refused(api: Client, value: bytes) -> None:
    """A2"""
    request = api.head("Content-Length: 2").replace(
        b"\r\n\r\n", b"\r\nIdempotency-Key: " + value + b"\r\n\r\n"
    )
    assert status_and_type(api.raw(request + b"{}")) == (400, "idempotency_key_invalid")


@pytest.mark.parametrize("second", ["b", "a", '"b"'])
def test_two_lines_with_a_key_are_refused(api: Client, second: str) -> None:
    """A2: also when they are equal."""
    head = api.head("Idempotency-Key: a", f"Idempotency-Key: {second}", "Content-Length: 2")
    assert status_and_type(api.raw(head + b"{}")) == (400, "idempotency_key_invalid")


def test_a_key_cannot_be_passed_in_under_a_name_that_looks_alike(api: Client) -> None:
    """A2: ``Idempotency_Key`` is another header."""
    head = api.head("Idempotency_Key: a", "Content-Length: 2")
    assert status_and_type(api.raw(head + b"{}")) == (400, "idempotency_key_missing")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"label": "\\u0000"}',
        b'{"label": "\\ud800"}',
        b'{"label": "a", "label": "b"}',
        b'{"number": NaN}',
        b'{"number": 1e999}',
        b'{"extra": %s%s}' % (b"[" * 10_000, b"]" * 10_000),
        b'{"extra": %s}' % (b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        b"[" * 60_000,
        b'{"number": %s}' % (b"9" * 5000),
        b'{"extra": "\x00"}',
    ],
)
def test_a_body_that_is_no_plain_json_object_is_refused(api: Client, content: bytes) -> None:
    """A2"""
    problem(api.post(content=content), 400, "malformed_body")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"labl": "x"}, {"labl"}),
        ({"labl": "x", "number": "y", "": 1}, {"labl", "number", ""}),
        ({"operation": "x", "expected_versio": 1}, {"operation", "expected_versio"}),
        ({"number": None}, {"number"}),
        ({"number": True, "label": {}}, {"number", "label"}),
        ({"number": [1]}, {"number"}),
        ({"number": 1.5}, {"number"}),
        ({"number": "1e5"}, {"number"}),
        ({"label": "x" * 101}, {"label"}),
        ({"script": "ok"}, {"script"}),
        ({"script": [1, {"a": 1}]}, {"script"}),
    ],
)
def test_invalid_and_unknown_members_are_told_field_by_field(
    api: Client, body: dict[str, Any], fields: set[str]
) -> None:
    """A2: all of them at once."""
    assert set(problem(api.post(body=body), 400, "invalid_request")["errors"]) == fields


@pytest.mark.parametrize("query", ["dry=1", "a", "=", "format=xml", "a=%00", "expected_version=1"])
def test_query_parameters_of_a_post_are_refused(api: Client, query: str) -> None:
    """A2: a request that says `dry=1` must not run."""
    problem(api.post(f"{SCRIPTED}?{query}"), 400, "invalid_request")


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=latin-1",
        "application/json; version=2",
        "application/problem+json",
        "*/*",
        "application/*",
        "*/json",
        "json",
        "",
        "application/json, application/json",
        "application/json; charset",
        "x" * 300,
    ],
)
def test_what_is_not_called_json_is_refused(api: Client, content_type: str) -> None:
    """A2"""
    answer = api.post(content=b'{"label": "x"}', headers={"Content-Type": content_type})
    problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("number", ["1_0", "+1", " 1", "1 ", "1.0", "٣", "", "0x1", "1e2", True])
def test_what_only_python_calls_a_whole_number_is_refused(api: Client, number: Any) -> None:
    """A2: no reader may take it for something else."""
    assert problem(api.post(body={"number": number}), 400, "invalid_request")["errors"]["number"]


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "x"])
def test_compressed_bodies_are_refused(api: Client, coding: str) -> None:
    """A2"""
    answer = api.post(content=b"{}", headers={"Content-Encoding": coding})
    problem(answer, 415, "unsupported_media_type")


def test_a_body_above_the_limit_is_refused(api: Client) -> None:
    """B9: with a length or in chunks, just above the limit or far."""
    for size in (64 * 1024 + 1, 1_000_000):
        body = b'{"label": "%s"}' % (b"x" * (size - 13))
        problem(api.post(content=body), 413, "body_too_large")
        headers = {"Idempotency-Key": "k", **JSON}
        chunks = (body[i : i + 9000] for i in range(0, len(body), 9000))
        problem(api.http.post(SCRIPTED, content=chunks, headers=headers), 413, "body_too_large")


def test_twenty_megabytes_are_refused_and_the_client_can_read_why(api: Client) -> None:
    """B9: although it sends to the end before it reads."""
    size = 20 * 1024 * 1024
    for framing in (f"Content-Length: {size}", "Transfer-Encoding: chunked"):
        with api.connect() as connection:
            connection.sendall(api.head("Idempotency-Key: k", framing))
            if "chunked" in framing:
                connection.sendall(b"%x\r\n" % size)
            connection.sendall(b"x" * size)
            if "chunked" in framing:
                connection.sendall(b"\r\n0\r\n\r\n")
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert status_and_type(answer) == (413, "body_too_large")


def test_who_asks_before_sending_too_much_is_told_at_once(api: Client) -> None:
    """B9: ``Expect: 100-continue``."""
    head = api.head("Idempotency-Key: k", "Content-Length: 99999999", "Expect: 100-continue")
    assert status_and_type(api.raw(head)) == (413, "body_too_large")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/v1/scripted?a=\xff HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"POST /api/v1/\xffscripted HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: x\r\nX: a\x01b\r\n\r\n",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: bad host\r\n" + EMPTY,
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: elsewhere.example\r\n" + EMPTY,
        b"GARBAGE\r\n\r\n",
        b"BREW /api/v1/scripted HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/v1/scripted HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_broken_http_is_answered_with_a_problem(api: Client, head: bytes) -> None:
    """A2: also by the server itself."""
    assert status_and_type(api.raw(head))[0] == 400


def test_headers_without_end_are_cut_off(api: Client) -> None:
    """A2"""
    many = [f"X-{n}: {'v' * 100}" for n in range(400)]
    head = api.head("Idempotency-Key: k", "Content-Length: 2", *many)
    assert status_and_type(api.raw(head + b"{}")) == (431, "headers_too_large")
    with api.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n")
        answer = b""
        try:
            for _ in range(200):
                connection.sendall(b"X: %s\r\n" % (b"v" * 1000))
            while part := connection.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            return
    assert status_and_type(answer) == (431, "headers_too_large")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=200), kind=st.sampled_from(["application/json", "text/plain", "a/b;c"])
)
def test_no_body_leads_to_a_server_error(api: Client, body: bytes, kind: str) -> None:
    """A2"""
    answer = api.post(content=body + b"x", headers={"Content-Type": kind}, key="k")
    assert answer.status_code in (400, 415)


def test_rubbish_behind_a_whole_request_does_not_take_its_answer_away(api: Client) -> None:
    """A2: nothing that was accepted may be answered with 400."""
    bad = json.dumps({"number": "x"}).encode()
    keep = api.head("Idempotency-Key: k", f"Content-Length: {len(bad)}").replace(
        b"Connection: close\r\n", b"Content-Type: application/json\r\n"
    )
    answer = api.raw(keep + bad + b"RUBBISH\r\n\r\n")
    assert status_and_type(answer) == (400, "invalid_request")
