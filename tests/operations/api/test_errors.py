"""Errors that no view makes, and what surrounds every answer."""

import json
import time

import pytest

from tests.lab.processes import Stack
from tests.lab.waiting import wait_until
from tests.operations.api.client import SCRIPTED, Client
from tests.operations.api.expect import problem

ORIGIN = "http://shop.example"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/api/v1/nix", "/api/v1/operations/", "/api/v2/x", "/nix"])
def test_an_unknown_address_is_not_found(api: Client, method: str, path: str) -> None:
    """A1"""
    answer = api.http.request(method, path)
    assert answer.status_code == 404
    if method != "HEAD":
        problem(answer, 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", SCRIPTED, "POST, OPTIONS"),
        ("DELETE", SCRIPTED, "POST, OPTIONS"),
        ("PUT", "/api/v1/operations", "GET, HEAD, OPTIONS"),
        ("POST", "/api/v1/operations", "GET, HEAD, OPTIONS"),
        ("PATCH", "/api/v1/operations/00000000-0000-7000-8000-000000000000", "GET, HEAD, OPTIONS"),
        ("GET", "/api/v1/operations/00000000-0000-7000-8000-000000000000/cancel", "POST, OPTIONS"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/readyz", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_there_is_told_with_those_that_are(
    api: Client, method: str, path: str, allowed: str
) -> None:
    """A1"""
    answer = api.http.request(method, path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == allowed


def test_the_bare_address_leads_to_the_documentation(api: Client) -> None:
    """H6"""
    for method in ("GET", "HEAD"):
        answer = api.http.request(method, "/")
        assert (answer.status_code, answer.headers["Location"]) == (302, "/api/docs")
    assert "swagger" in api.http.get("/", follow_redirects=True).text
    refused = api.http.post("/")
    problem(refused, 405, "method_not_allowed")
    assert refused.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/api/docs", "/api/schema"])
def test_documentation_answers_every_method_and_query(api: Client, path: str) -> None:
    """A1 H6: what goes wrong is told in JSON, whatever form the document has."""
    for query in ("version=%0d%0ax", "version=%00", "version=%c3%a9", "lang=%00", "lang=xx"):
        for method in ("GET", "HEAD", "OPTIONS"):
            assert api.http.request(method, f"{path}?{query}").status_code == 200, query
    options = api.http.options(path)
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert options.json()["name"]
    for method in ("POST", "PUT", "DELETE"):
        refused = api.http.request(method, path)
        problem(refused, 405, "method_not_allowed")
        assert refused.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_options_tells_the_methods(api: Client) -> None:
    """A1"""
    answer = api.http.options(SCRIPTED)
    assert answer.status_code == 200
    assert answer.headers["Allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("accept", ["text/html", "application/problem+json", "x", "*/*;q=0", ""])
def test_no_answer_depends_on_accept(api: Client, accept: str) -> None:
    """A10: a replay is not refused for a header."""
    assert api.post(key="k", headers={"Accept": accept}).status_code == 202


def test_the_request_id_is_the_clients_or_a_new_one(api: Client) -> None:
    """H2: in every answer, problems included."""
    assert api.get("/nix", {"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    body = problem(api.get("/nix", {"X-Request-ID": "mine-2"}), 404, "not_found")
    assert body["request_id"] == "mine-2"
    for bad in ("a b", "x" * 129, '"', "<script>", ""):
        made = api.get("/nix", {"X-Request-ID": bad}).headers["X-Request-ID"]
        assert len(made) == 32
        assert made != bad


def test_a_malformed_traceparent_is_left_out(api: Client) -> None:
    """H2: and does not harm the request."""
    for bad in ("x", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff-x"):
        assert api.post(headers={"traceparent": bad}).status_code == 202


def test_each_request_has_its_line_in_the_log(api: Client, api_stack: Stack) -> None:
    """H2: with ids, status and duration, and without secrets."""
    accepted = api.post(key="key-in-log", headers={"X-Request-ID": "logged-1"})

    def lines() -> list[dict[str, object]]:
        output = api_stack.apis[0].output().splitlines()
        parsed = [json.loads(line) for line in output if line.startswith("{")]
        return [line for line in parsed if line.get("request_id") == "logged-1"]

    wait_until(lambda: len(lines()) == 2)
    intake, access = lines()
    assert intake["operation_id"] == accepted.json()["id"]
    assert intake["idempotency_key"] == "key-in-log"
    assert (access["status"], access["method"], access["path"]) == (202, "POST", SCRIPTED)
    assert isinstance(access["ms"], float)
    assert api.token not in api_stack.apis[0].output()


def test_browsers_of_the_allowed_origin_may_use_the_api(stack: Stack) -> None:
    """A8: keys, conditions and the headers that say when and where to ask again."""
    from tests.operations.api.client import new_client

    stack.env["CORS_ORIGINS"] = ORIGIN
    stack.start(workers=0, dispatchers=0, sandbox=False)
    with new_client(stack.api_url) as api:
        asked = "authorization,content-type,idempotency-key,if-match,if-none-match,prefer"
        preflight = {
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": asked,
            "Authorization": "",
        }
        answer = api.http.options(SCRIPTED, headers=preflight)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert set(asked.split(",")) <= set(
            answer.headers["Access-Control-Allow-Headers"].split(", ")
        )
        elsewhere = api.http.options(SCRIPTED, headers={**preflight, "Origin": "http://evil"})
        assert "Access-Control-Allow-Origin" not in elsewhere.headers
        # Errors are readable too, those included that never reach a view.
        answers = [
            api.post(headers={"Origin": ORIGIN}),
            api.post(headers={"Origin": ORIGIN}, key="a b"),
            api.post(headers={"Origin": ORIGIN}, content=b"x" * 70_000),
            api.post(headers={"Origin": ORIGIN, "Content-Encoding": "gzip"}, content=b"x"),
            api.get("/api/v1/nix", {"Origin": ORIGIN}),
        ]
        assert [answer.status_code for answer in answers] == [202, 400, 413, 415, 404]
        for answer in answers:
            assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
            exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
            assert {"Location", "Retry-After", "ETag", "Idempotent-Replayed"} <= set(exposed)


def test_the_documentation_is_there_with_all_its_files(api: Client) -> None:
    """H6: from this server, from nowhere else."""
    page = api.get("/api/docs")
    assert page.status_code == 200
    assert "://" not in page.text.replace("http://www.w3.org", "")
    files = [part.split('"')[0] for part in page.text.split('"/static/')[1:]]
    assert files
    for file in files:
        assert api.get(f"/static/{file}").status_code == 200
    assert api.get("/static/admin/css/base.css").status_code == 200
    started = time.monotonic()
    assert api.get("/static/../settings.py").status_code == 404
    assert time.monotonic() - started < 5
