"""Bearer tokens."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from operations import tokens
from operations.models import ApiToken
from tests.operations.api.client import SCRIPTED, Client
from tests.operations.api.expect import problem

LIST = "/api/v1/operations"


def refused(client: Client, header: str | None) -> None:
    """Assert 401, and that the client is told which scheme to use."""
    headers = {} if header is None else {"Authorization": header}
    client.http.headers.pop("Authorization", None)
    for answer in (client.get(LIST, headers), client.post(headers=headers)):
        problem(answer, 401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")


def test_without_a_token_nothing_is_answered(api: Client) -> None:
    """A2: not even a replay to a known key."""
    api.post(key="k")
    refused(api, None)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer x",
        "Bearer sk_",
        "Bearer sk_" + "x" * 43,
        "Bearer sk_" + "x" * 10_000,
        "Basic ZGVtbzpkZW1v",
        "Token {token}",
        "{token}",
        "Bearer {token} x",
        "Bearer {token}x",
        "Bearer {token},Bearer {token}",
        "Bearer '{token}'",
    ],
)
def test_what_is_no_valid_token_is_refused(api: Client, header: str) -> None:
    """A2"""
    refused(api, header.format(token=api.token))


def test_raw_bytes_in_a_token_are_refused(api: Client) -> None:
    """A2"""
    for value in (b"Bearer \xff", b"Bearer sk_\xc3\xa9" + b"x" * 40, b"\xff\xfe"):
        head = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
        answer = api.raw(head.encode() + value + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"application/problem+json" in answer


def test_the_scheme_is_read_without_regard_to_case(api: Client) -> None:
    """A2"""
    assert api.get(LIST, {"Authorization": f"bearer {api.token}"}).status_code == 200


def test_a_token_ends_by_revocation_expiry_and_with_its_user(api: Client) -> None:
    """A2: at once, on every process."""
    user = get_user_model().objects.get(pk=api.user)
    mine = ApiToken.objects.get(user=user)

    def works() -> bool:
        return api.get(LIST).status_code == 200

    assert works()
    ApiToken.objects.filter(pk=mine.pk).update(expires_at=Now())
    assert not works()
    ApiToken.objects.filter(pk=mine.pk).update(expires_at=Now() + timedelta(hours=1))
    assert works()
    get_user_model().objects.filter(pk=user.pk).update(is_active=False)
    assert not works()
    get_user_model().objects.filter(pk=user.pk).update(is_active=True)
    assert works()
    assert tokens.revoke(mine.pk)
    assert not works()
    assert not tokens.revoke(mine.pk)


def test_several_tokens_of_a_user_work_side_by_side(api: Client) -> None:
    """A2"""
    user = get_user_model().objects.get(pk=api.user)
    second = tokens.issue(user, "second", timedelta(hours=1))
    first_id = api.post(key="k").json()["id"]
    assert api.post(key="k", headers={"Authorization": f"Bearer {second}"}).json()["id"] == first_id


def test_only_digests_are_stored(api: Client) -> None:
    """A2: a copy of the database opens nothing."""
    stored = ApiToken.objects.filter(user_id=api.user).values().get()
    assert api.token not in str(stored)
    assert len(api.token) >= len("sk_") + 43
    with pytest.raises(ValueError, match="lifetime"):
        tokens.issue(get_user_model().objects.get(pk=api.user), "never", timedelta(0))


def test_tokens_are_issued_listed_and_revoked_by_command(
    api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """A2"""
    username = get_user_model().objects.get(pk=api.user).get_username()
    call_command("tokens", "issue", username, "--name", "by hand", "--days", "1")
    token = capsys.readouterr().out.strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert api.get(LIST, headers).status_code == 200
    call_command("tokens", "list", username)
    line = next(line for line in capsys.readouterr().out.splitlines() if "by hand" in line)
    assert token not in line
    call_command("tokens", "revoke", line.split("\t")[0])
    assert api.get(LIST, headers).status_code == 401
    capsys.readouterr()
    call_command("tokens", "list")
    assert "revoked" in capsys.readouterr().out
    for wrong in (["issue", "nobody"], ["issue", username, "--days", "0"], ["revoke", "0"]):
        with pytest.raises(CommandError):
            call_command("tokens", *wrong)


def test_addresses_that_need_no_token_look_at_none(api: Client) -> None:
    """A1"""
    api.http.headers["Authorization"] = "Bearer wrong"
    for path in ("/healthz", "/readyz", "/api/schema", "/api/docs"):
        assert api.get(path).status_code == 200, path
    problem(api.post(SCRIPTED), 401, "unauthenticated")
