"""Status, list and cancel."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from operations import verbs
from operations.claimed_row import ClaimedRow
from operations.endings import Dead, Defer, Done, Failure, Refusal, Retry
from operations.models import Category, Operation
from tests.operations.api.client import Client, new_client
from tests.operations.api.expect import problem

LIST = "/api/v1/operations"
FAILURE = Failure(Category.DEPENDENCY, "Timeout", "no answer")


def claim(id: str) -> ClaimedRow:
    """What a worker would do."""
    claimed = verbs.claim(uuid.UUID(id), "scripted.local", claimed_by="test#1", fifo=False)
    assert claimed is not None
    return claimed


def settle(id: str, ending: Done | Refusal | Retry | Dead) -> None:
    verbs.settle(claim(id), ending, retention=timedelta(hours=1))


class TestStatus:
    """GET /operations/{id}"""

    def test_it_is_there_the_instant_the_202_is_out(self, api: Client) -> None:
        """A8"""
        accepted = api.post()
        status = api.get(accepted.headers["Location"])
        assert status.status_code == 200
        assert status.json() == accepted.json()
        assert status.headers["Cache-Control"] == "private, no-cache"
        assert status.headers["ETag"] == '"1"'
        assert status.headers["Retry-After"] == "1"

    @pytest.mark.parametrize(
        ("ending", "state"),
        [
            (Done(None), "done"),
            (Refusal("no", "No."), "failed"),
            (Dead(FAILURE), "dead"),
        ],
    )
    def test_it_is_200_however_the_operation_ended(
        self, api: Client, ending: Done | Refusal | Dead, state: str
    ) -> None:
        """A8: a poller that gets a 500 for a failed operation would ask for ever."""
        accepted = api.post()
        settle(accepted.json()["id"], ending)
        status = api.get(accepted.headers["Location"])
        assert (status.status_code, status.json()["state"]) == (200, state)
        assert "Retry-After" not in status.headers
        assert (status.json()["error"] is None) == (state == "done")
        assert status.json()["finished_at"] is not None

    def test_what_is_known_is_not_sent_again(self, api: Client) -> None:
        """A8: 304 until something changed, for strong and weak tags and lists."""
        accepted = api.post()
        path = accepted.headers["Location"]
        tag = api.get(path).headers["ETag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            same = api.get(path, {"If-None-Match": known})
            assert (same.status_code, same.content) == (304, b"")
            assert same.headers["ETag"] == tag
            assert same.headers["Retry-After"] == "1"
            assert same.headers["Cache-Control"] == "private, no-cache"
        for other in ('"0"', "1", "rubbish", '"1', ""):
            assert api.get(path, {"If-None-Match": other}).status_code == 200
        claim(accepted.json()["id"])
        changed = api.get(path, {"If-None-Match": tag})
        assert (changed.status_code, changed.json()["state"]) == (200, "running")
        assert changed.headers["ETag"] != tag

    def test_it_says_when_to_ask_again(self, api: Client) -> None:
        """A8: not before the next attempt, and within a minute."""
        accepted = api.post()
        id = accepted.json()["id"]
        settle(id, Retry(FAILURE, 20))
        assert 15 <= int(api.get(accepted.headers["Location"]).headers["Retry-After"]) <= 20
        Operation.objects.filter(pk=id).update(not_before=Now() + timedelta(hours=1))
        assert api.get(accepted.headers["Location"]).headers["Retry-After"] == "60"

    @pytest.mark.parametrize(
        "id",
        [
            "x",
            "0",
            "%00",
            "..",
            "{other}",
            "00000000-0000-7000-8000-000000000000",
            "{id}x",
            "{{{id}}}",
            "urn:uuid:{id}",
            "%ff",
            "1" * 3000,
        ],
    )
    def test_an_id_that_is_none_of_yours_is_not_found(self, api: Client, id: str) -> None:
        """A8: malformed, unknown, or another owner's."""
        mine = api.post().json()["id"]
        with new_client(api.url) as other:
            path = f"{LIST}/{id.format(id=mine, other=other.post().json()['id'])}"
        problem(api.get(path), 404, "not_found")
        problem(api.post(f"{path}/cancel"), 404, "not_found")

    def test_an_id_may_be_written_in_capitals(self, api: Client) -> None:
        """A8"""
        id = api.post().json()["id"]
        assert api.get(f"{LIST}/{id.upper()}").status_code == 200

    def test_head_answers_as_get_without_a_body(self, api: Client) -> None:
        """A8"""
        path = api.post().headers["Location"]
        head = api.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["ETag"] == '"1"'


class TestList:
    """GET /operations"""

    def ids(self, page: Any) -> list[str]:
        return [row["id"] for row in page["results"]]

    def test_pages_lead_through_all_of_it_in_both_directions(self, api: Client) -> None:
        """A8: newest first; what comes in meanwhile shifts nothing."""
        made = [api.post().json()["id"] for _ in range(7)][::-1]
        page = api.get(f"{LIST}?page_size=3").json()
        assert (page["page_size"], page["previous"]) == (3, None)
        api.post()
        seen = self.ids(page)
        while page["next"]:
            page = api.get(page["next"]).json()
            seen += self.ids(page)
        assert seen == made
        assert self.ids(page) == made[6:]
        back: list[str] = []
        while page["previous"]:
            page = api.get(page["previous"]).json()
            back = self.ids(page) + back
        assert back[-6:] == made[:6]
        with new_client(api.url) as other:
            assert other.get(LIST).json() == {
                "results": [],
                "next": None,
                "previous": None,
                "page_size": 50,
            }

    def test_it_is_filtered_by_state_and_kind(self, api: Client) -> None:
        """A8"""
        local = api.post().json()["id"]
        split = api.post("/api/v1/scripted/split").json()["id"]
        claim(local)
        assert self.ids(api.get(f"{LIST}?state=running").json()) == [local]
        assert self.ids(api.get(f"{LIST}?kind=scripted.split").json()) == [split]
        assert self.ids(api.get(f"{LIST}?kind=scripted.split&state=done").json()) == []
        page = api.get(f"{LIST}?kind=scripted.split&page_size=1").json()
        api.post("/api/v1/scripted/split")
        assert page["next"] is None

    @pytest.mark.parametrize(
        "query",
        [
            "cursor=",
            "cursor=x",
            "cursor=cD14",
            "cursor=cD05OTk5OTk5OTk5OTk5OTk5OTk5OQ==",
            "cursor=bz01JnA9MQ==",
            "cursor=%00",
            "cursor=%ff",
            "cursor=" + "9" * 6000,
            "page_size=0",
            "page_size=x",
            "page_size=-1",
            "page_size=201",
            "page_size=" + "9" * 6000,
            "state=nix",
            "state=",
            "state=%00",
            "kind=nix",
            "kind=%00",
            "stat=done",
        ],
    )
    def test_bad_filters_are_refused(self, api: Client, query: str) -> None:
        """A8: and not left out, which would answer another question."""
        name = query.partition("=")[0]
        errors = problem(api.get(f"{LIST}?{query}"), 400, "invalid_request")["errors"]
        assert list(errors) == [name]


class TestCancel:
    """POST /operations/{id}/cancel"""

    def test_what_was_never_claimed_is_cancelled(self, api: Client) -> None:
        """A4: again and again with the same answer; the key stands for the cancelled one."""
        accepted = api.post(key="k")
        first = api.post(f"{accepted.headers['Location']}/cancel")
        assert (first.status_code, first.json()["state"]) == (200, "cancelled")
        assert first.headers["ETag"] == '"2"'
        again = api.post(f"{accepted.headers['Location']}/cancel")
        assert (again.status_code, again.json()) == (200, first.json())
        replay = api.post(key="k")
        assert (replay.status_code, replay.json()["state"]) == (200, "cancelled")

    def test_what_was_ever_claimed_is_not(self, api: Client) -> None:
        """A4: also while it waits for a retry: it may have had effects."""
        accepted = api.post()
        path = f"{accepted.headers['Location']}/cancel"
        held = claim(accepted.json()["id"])
        assert problem(api.post(path), 409, "not_cancellable")["state"] == "running"
        verbs.settle(held, Retry(FAILURE, 60), retention=timedelta(hours=1))
        assert problem(api.post(path), 409, "not_cancellable")["state"] == "pending"
        Operation.objects.filter(pk=held.id).update(not_before=Now())
        settle(str(held.id), Done(None))
        assert problem(api.post(path), 409, "not_cancellable")["state"] == "done"

    def test_a_claim_that_was_given_back_unused_leaves_it_cancellable(self, api: Client) -> None:
        """A4"""
        accepted = api.post()
        verbs.defer(claim(accepted.json()["id"]), Defer(1, "busy", began=False))
        assert api.post(f"{accepted.headers['Location']}/cancel").status_code == 200

    def test_the_client_may_say_which_version_it_has_seen(self, api: Client) -> None:
        """A9"""
        accepted = api.post()
        path = f"{accepted.headers['Location']}/cancel"
        for stale in ('"0"', 'W/"1"', '"2", "3"'):
            answer = api.post(path, headers={"If-Match": stale})
            problem(answer, 412, "precondition_failed")
            assert answer.headers["ETag"] == '"1"'
        problem(api.post(path, body={"expected_version": 2}), 412, "precondition_failed")
        assert api.post(path, headers={"If-Match": '"7", "1"'}).status_code == 200
        # It has happened already: what the client wanted is so.
        assert api.post(path, headers={"If-Match": '"1"'}).status_code == 200
        other = api.post()
        path = f"{other.headers['Location']}/cancel"
        assert api.post(path, headers={"If-Match": "*"}).status_code == 200

    def test_a_stale_version_is_told_before_anything_else(self, api: Client) -> None:
        """A9"""
        accepted = api.post()
        claim(accepted.json()["id"])
        answer = api.post(
            f"{accepted.headers['Location']}/cancel", headers={"If-Match": accepted.headers["ETag"]}
        )
        problem(answer, 412, "precondition_failed")

    def test_bad_input_is_refused(self, api: Client) -> None:
        """A2"""
        path = f"{api.post().headers['Location']}/cancel"
        problem(api.post(path, body={"reason": "x"}), 400, "invalid_request")
        problem(api.post(f"{path}?a=1"), 400, "invalid_request")
        problem(api.post(path, content="["), 400, "malformed_body")
        problem(api.post(path, headers={"If-Match": "1"}), 400, "malformed_request")
        assert api.http.post(path).status_code == 200

    def test_what_waited_for_the_resource_is_woken(self, api: Client) -> None:
        """A7: a message for the next in line goes out with the answer."""
        resource = {"on": "of this test alone"}
        first = api.post(body=resource)
        second = api.post(body=resource).json()["id"]
        Operation.objects.filter(pk=second).update(sent_at=None, due_at=F("due_at"))
        assert api.post(f"{first.headers['Location']}/cancel").status_code == 200
        assert Operation.objects.get(pk=second).sent_at is not None
