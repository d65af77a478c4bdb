"""The OpenAPI document tells what a client needs to know."""

import io
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from tests.operations.api.client import Client
from tests.operations.api.expect import problem


@pytest.fixture(scope="module")
def paths() -> Any:
    """As the command writes them, which complains about what it cannot tell."""
    out = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())["paths"]


def test_it_is_served_and_valid(api: Client) -> None:
    """H6"""
    served = yaml.safe_load(api.get("/api/schema").text)
    assert served["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    as_json = api.get("/api/schema", {"Accept": "application/json"})
    assert as_json.json()["paths"].keys() == served["paths"].keys()
    assert api.get("/api/schema?version=2&lang=de").text == api.get("/api/schema").text


def test_a_form_that_is_not_there_is_told_in_json(api: Client) -> None:
    """A1"""
    problem(api.get("/api/schema", {"Accept": "text/html"}), 406, "not_acceptable")
    problem(api.get("/api/schema?format=xml"), 404, "not_found")


def test_a_post_tells_its_key_answers_and_headers(paths: Any) -> None:
    """A4: for every kind alike."""
    posts = [path["post"] for path in paths.values() if "post" in path]
    submits = [post for post in posts if "202" in post["responses"]]
    assert len(submits) >= 2
    for post in submits:
        key = next(p for p in post["parameters"] if p["name"] == "Idempotency-Key")
        assert (key["in"], key["required"]) == ("header", True)
        statuses = {"200", "202", "400", "401", "413", "415", "422", "429", "503"}
        assert set(post["responses"]) >= statuses
        for status in ("200", "202"):
            headers = post["responses"][status]["headers"]
            assert {"Location", "Retry-After", "Idempotent-Replayed", "ETag"} <= set(headers)
        for status in ("400", "401", "422", "429", "503"):
            assert list(post["responses"][status]["content"]) == ["application/problem+json"]
        assert post["security"] == [{"bearer": []}]


def test_a_status_tells_conditions_and_not_modified(paths: Any) -> None:
    """A8"""
    get = paths["/api/v1/operations/{id}"]["get"]
    assert "If-None-Match" in [p["name"] for p in get["parameters"]]
    assert {"200", "304", "404"} <= set(get["responses"])
    assert {"ETag", "Retry-After"} <= set(get["responses"]["200"]["headers"])
