"""The POST that starts an operation, sequentially."""

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from operations import verbs
from operations.endings import Dead, Done, Failure, Refusal
from operations.intake import KeyReused, submit
from operations.models import Category, IdempotencyRecord, Operation
from tests.lab.scripted.models import Counter
from tests.operations.api.client import SCRIPTED, Client, new_client
from tests.operations.api.expect import problem

SPLIT = "/api/v1/scripted/split"


def count(client: Client) -> int:
    return Operation.objects.filter(owner_id=client.user).count()


def end(id: str, ending: Done | Refusal | Dead) -> None:
    """What a worker would do."""
    claimed = verbs.claim(uuid.UUID(id), "scripted.local", claimed_by="test#1", fifo=False)
    assert claimed is not None
    verbs.settle(claimed, ending, retention=timedelta(hours=1))


def test_a_new_key_is_accepted_and_stored_with_all_that_is_known(api: Client) -> None:
    """A1 A2: 202 at once; the row is there, pending, with its correlation."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = api.post(
        body={"label": "x", "on": "desk"},
        key="first",
        headers={"X-Request-ID": "req-1", "traceparent": trace},
    )
    assert answer.status_code == 202
    body = answer.json()
    assert answer.headers["Location"] == f"/api/v1/operations/{body['id']}"
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["ETag"] == '"1"'
    assert answer.headers["X-Request-ID"] == "req-1"
    assert "Idempotent-Replayed" not in answer.headers
    assert body == {
        "id": body["id"],
        "kind": "scripted.local",
        "state": "pending",
        "result": None,
        "error": None,
        "attempts": 0,
        "created_at": body["created_at"],
        "started_at": None,
        "finished_at": None,
        "version": 1,
    }
    stored = Operation.objects.get(pk=body["id"])
    assert stored.owner_id == api.user
    assert stored.resource == "desk"
    assert (stored.request_id, stored.traceparent) == ("req-1", trace)
    assert stored.sent_at is not None
    assert uuid.UUID(body["id"]).version == 7
    record = IdempotencyRecord.objects.get(operation_id=body["id"])
    assert (record.owner_id, record.kind, record.key) == (api.user, "scripted.local", "first")


def test_a_second_post_is_answered_with_the_first_operation(api: Client) -> None:
    """A3 A4: 202 while it is open, whatever form the key has."""
    first = api.post(body={"label": "x"}, key="k")
    for key in ("k", '"k"', '"k";parameter=1'):
        again = api.post(body={"label": "x"}, key=key)
        assert again.status_code == 202
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.headers["Location"] == first.headers["Location"]
        assert again.json() == first.json()
    assert count(api) == 1
    assert IdempotencyRecord.objects.get(owner_id=api.user).replays == 3


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Done({"answer": 42}), "done"),
        (Refusal("no_stock", "None left."), "failed"),
        (Dead(Failure(Category.BUG, "RuntimeError", "a bug")), "dead"),
    ],
)
def test_a_replay_after_the_end_is_answered_with_how_it_ended(
    api: Client, ending: Done | Refusal | Dead, state: str
) -> None:
    """A4: 200 and the present state; also a failed operation is never a failed request."""
    first = api.post(key="k")
    end(first.json()["id"], ending)
    again = api.post(key="k")
    assert again.status_code == 200
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Retry-After" not in again.headers
    assert again.json()["state"] == state
    assert again.json()["id"] == first.json()["id"]
    if state == "failed":
        assert again.json()["error"]["category"] == "refused"
        assert again.json()["error"]["code"] == "no_stock"
    if state == "done":
        assert again.json()["result"] == {"answer": 42}


def test_the_same_key_with_other_input_is_refused_and_names_the_operation(api: Client) -> None:
    """A4"""
    first = api.post(body={"label": "x"}, key="k")
    refused = problem(api.post(body={"label": "y"}, key="k"), 422, "idempotency_key_reused")
    assert refused["operation_id"] == first.json()["id"]
    assert refused["operation"] == first.headers["Location"]
    assert count(api) == 1


def test_a_key_of_another_owner_or_kind_is_another_key(api: Client) -> None:
    """A2 A3"""
    first = api.post(key="k")
    with new_client(api.url) as other:
        second = other.post(key="k")
        assert second.status_code == 202
        assert "Idempotent-Replayed" not in second.headers
        assert problem(other.get(first.headers["Location"]), 404, "not_found")
    third = api.post(SPLIT, key="k")
    assert len({answer.json()["id"] for answer in (first, second, third)}) == 3


def test_another_token_of_the_same_user_means_the_same_key(api: Client) -> None:
    """A2: a token that was replaced does not run the effect again."""
    first = api.post(key="k")
    username = api_username(api)
    with new_client(api.url, username) as same:
        again = same.post(key="k")
        assert again.json()["id"] == first.json()["id"]
        assert again.headers["Idempotent-Replayed"] == "true"


def api_username(client: Client) -> str:
    return str(get_user_model().objects.get(pk=client.user).get_username())


@pytest.mark.parametrize(
    "body",
    [
        '{"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}}',
        '{"extra":{"b":[1,2.5],"a":1},"label":"café","number":1}',
        ' { "label" : "caf\\u00e9", "number": 1.0, "extra": {"b": [1.0, 2.5], "a": 1} } ',
        '{"number": "1", "label": "café", "extra": {"a": 1, "b": [1, 2.50]}}',
        '{"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}, "script": ["ok"]}',
        '{"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}, "on": ""}',
        '{"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}, "client_time": "9:00"}',
        '{"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}, "client_time": "9:01"}',
    ],
)
def test_the_form_of_a_body_does_not_make_it_another_request(api: Client, body: str) -> None:
    """A6: order, white space, escapes, 1 and 1.0, defaults, incidental fields."""
    first = api.post(body={"number": 1, "label": "café", "extra": {"a": 1, "b": [1, 2.5]}}, key="k")
    again = api.post(content=body.encode(), key="k")
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    "change",
    [
        {"extra": [2, 1]},
        {"extra": [1, 2, 2]},
        {"extra": [1, 2.5]},
        {"extra": ["1", 2]},
        {"extra": [True, 2]},
        {"extra": None},
        {"label": "X"},
        {"number": 0},
        {"on": "desk"},
        {"script": ["ok", "ok"]},
    ],
)
def test_every_value_makes_another_request(api: Client, change: dict[str, Any]) -> None:
    """A4: also the order of an array, and what looks alike but is not."""
    body = {"extra": [1, 2], "label": "x", "number": 1}
    api.post(body=body, key="k")
    problem(api.post(body={**body, **change}, key="k"), 422, "idempotency_key_reused")


def test_an_invalid_body_does_not_burn_the_key(api: Client) -> None:
    """A2"""
    assert api.post(body={"number": "many"}, key="k").status_code == 400
    assert api.post(body={"number": 1}, key="k").status_code == 202


def test_an_invalid_body_under_a_known_key_is_invalid(api: Client) -> None:
    """A4: the field errors, not a replay."""
    api.post(body={"number": 1}, key="k")
    errors = problem(api.post(body={"number": "x"}, key="k"), 400, "invalid_request")["errors"]
    assert list(errors) == ["number"]


def test_checks_against_data_refuse_the_new_and_never_a_replay(api: Client) -> None:
    """A4 A10: what was fine when it was accepted is answered, whatever has changed since."""
    first = api.post(body={"label": "x"}, key="k")
    Counter.objects.create(name="refusing", value=1)
    try:
        refused = problem(api.post(body={"label": "x"}, key="k2"), 400, "invalid_request")
        assert refused["errors"] == {"label": ["refused"]}
        again = api.post(body={"label": "x"}, key="k")
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        problem(api.post(body={"label": "y"}, key="k"), 422, "idempotency_key_reused")
    finally:
        Counter.objects.filter(name="refusing").delete()
    assert api.post(body={"label": "x"}, key="k2").status_code == 202


@pytest.fixture
def version(api: Client) -> Iterator[Counter]:
    """What the scripted kind calls its version: 3."""
    counter = Counter.objects.create(name="version", value=3)
    yield counter
    counter.delete()


@pytest.mark.usefixtures("version")
class TestStaleContext:
    """A9: a request that was made from an outdated page is refused, not acted on."""

    @pytest.mark.parametrize("header", ['"3"', '"2", "3"', "*", '"other", "3"', 'W/"2", "3"'])
    def test_what_matches_is_accepted(self, api: Client, header: str) -> None:
        """A9"""
        assert api.post(headers={"If-Match": header}).status_code == 202

    @pytest.mark.parametrize("header", ['"2"', 'W/"3"', '"v3"', '"03"', '"99999999999999999999"'])
    def test_what_does_not_match_is_refused(self, api: Client, header: str) -> None:
        """A9: with the present ETag, and nothing stored."""
        answer = api.post(headers={"If-Match": header})
        problem(answer, 412, "precondition_failed")
        assert answer.headers["ETag"] == '"3"'
        assert count(api) == 0

    def test_a_malformed_header_is_an_error(self, api: Client) -> None:
        """A9: and not a condition that is skipped."""
        problem(api.post(headers={"If-Match": "3"}), 400, "malformed_request")

    def test_the_body_may_say_it_too(self, api: Client) -> None:
        """A9"""
        assert api.post(body={"expected_version": 3}).status_code == 202
        problem(api.post(body={"expected_version": 2}), 412, "precondition_failed")
        for wrong in ("x", -1, None, 2**31, 1.5, [3]):
            problem(api.post(body={"expected_version": wrong}), 400, "invalid_request")
        both = api.post(body={"expected_version": 3}, headers={"If-Match": '"2", "4"'})
        problem(both, 412, "precondition_failed")

    def test_it_is_stored_beside_the_payload_and_is_no_part_of_the_request(
        self, api: Client
    ) -> None:
        """A6 A9"""
        first = api.post(body={"expected_version": 3}, key="k").json()
        stored = Operation.objects.get(pk=first["id"])
        assert stored.precondition == {"versions": [3]}
        assert "expected_version" not in stored.payload
        assert api.post(key="k").json()["id"] == first["id"]

    def test_a_replay_is_answered_whatever_the_version_is_now(
        self, api: Client, version: Counter
    ) -> None:
        """A9 A10"""
        first = api.post(body={"label": "x"}, key="k", headers={"If-Match": '"3"'})
        version.value = 4
        version.save()
        again = api.post(body={"label": "x"}, key="k", headers={"If-Match": '"3"'})
        assert again.json()["id"] == first.json()["id"]
        problem(
            api.post(body={"label": "y"}, key="k", headers={"If-Match": '"3"'}),
            422,
            "idempotency_key_reused",
        )

    def test_a_thing_that_is_not_there_matches_nothing(self, api: Client) -> None:
        """A9"""
        Counter.objects.filter(name="version").update(name="gone")
        try:
            problem(api.post(headers={"If-Match": "*"}), 412, "precondition_failed")
            problem(api.post(body={"expected_version": 0}), 412, "precondition_failed")
        finally:
            Counter.objects.filter(name="gone").delete()

    def test_where_nothing_has_a_version_the_condition_is_refused(self, api: Client) -> None:
        """A9: a promise that nobody keeps must not be accepted."""
        problem(api.post(SPLIT, headers={"If-Match": '"3"'}), 400, "malformed_request")
        problem(api.post(SPLIT, body={"expected_version": 3}), 400, "invalid_request")


def test_a_record_made_by_other_rules_is_replayed(api: Client) -> None:
    """A4 A6: a fingerprint of another version proves nothing."""
    first = api.post(body={"label": "x"}, key="k").json()
    IdempotencyRecord.objects.filter(owner_id=api.user).update(fingerprint_version=99)
    again = api.post(body={"label": "y"}, key="k")
    assert (again.status_code, again.json()["id"]) == (202, first["id"])


def test_an_empty_body_means_no_members(api: Client) -> None:
    """A2: where nothing is required."""
    for headers in ({}, {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}):
        answer = api.http.post(SCRIPTED, headers={"Idempotency-Key": "k", **headers})
        assert answer.status_code == 202
    form = {"Content-Type": "application/x-www-form-urlencoded", "Idempotency-Key": "k"}
    assert api.http.post(SCRIPTED, headers=form).status_code == 202
    assert count(api) == 1


def test_a_chunked_body_is_read(api: Client) -> None:
    """A2"""

    def parts() -> Any:
        for part in json.dumps({"label": "in parts"}).encode():
            yield bytes([part])

    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = api.http.post(SCRIPTED, content=parts(), headers=headers)
    assert answer.status_code == 202
    assert Operation.objects.get(pk=answer.json()["id"]).payload["label"] == "in parts"


def test_plain_python_submits_by_the_same_rules(api: Client) -> None:
    """A3 A4: a management command and the API share the keys."""
    first = api.post(body={"label": "x"}, key="k").json()
    found = submit("scripted.local", owner=api.user, key="k", data={"label": "x"})
    assert (str(found.operation["id"]), found.replayed) == (first["id"], True)
    with pytest.raises(KeyReused):
        submit("scripted.local", owner=api.user, key="k", data={"label": "y"})
    made = submit("scripted.local", owner=api.user, key="k2", data={"label": "x"})
    assert not made.replayed
    assert api.post(body={"label": "x"}, key="k2").json()["id"] == str(made.operation["id"])
