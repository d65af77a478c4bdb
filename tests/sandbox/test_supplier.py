"""The supplier's half of the sandbox."""

from typing import Any

import pytest

from tests.sandbox.process import SandboxProcess


def test_an_unknown_user_owns_the_default_snapshot(sandbox: SandboxProcess) -> None:
    """G1."""
    answer = sandbox.http.get("/supplier/users/4711/items")
    assert answer.json() == {
        "revision": 1,
        "items": [{"sku": "sku-1", "quantity": 1}, {"sku": "sku-scarce", "quantity": 1}],
        "next": None,
    }
    assert sandbox.supplier_calls() == 1


def test_a_snapshot_is_told_in_pages_of_one_revision(sandbox: SandboxProcess) -> None:
    """G1."""
    items = [{"sku": f"sku-{number}", "quantity": number} for number in range(5)]
    sandbox.http.put("/supplier/users/a%2Fb", json={"revision": 7, "items": items})

    told: list[Any] = []
    page: int | None = 1
    while page is not None:
        url = f"/supplier/users/a%2Fb/items?page={page}&page_size=2"
        answer = sandbox.http.get(url).json()
        assert answer["revision"] == 7
        told += answer["items"]
        page = answer["next"]

    assert told == items
    assert sandbox.supplier_calls() == 3


def test_a_new_snapshot_shows_in_the_revision_of_the_next_page(sandbox: SandboxProcess) -> None:
    """G1: a caller can tell that two pages do not belong together."""
    items = [{"sku": "sku-1", "quantity": 1}, {"sku": "sku-2", "quantity": 2}]
    url = "/supplier/users/8"
    sandbox.http.put(url, json={"revision": 1, "items": items})
    first = sandbox.http.get(f"{url}/items?page=1&page_size=1").json()
    sandbox.http.put(url, json={"revision": 2, "items": items})
    second = sandbox.http.get(f"{url}/items?page=2&page_size=1").json()
    assert (first["revision"], second["revision"]) == (1, 2)


@pytest.mark.parametrize("query", ["page=0", "page=x", "page_size=1001", "page=1&limit=3"])
def test_a_bad_page_is_a_400(sandbox: SandboxProcess, query: str) -> None:
    """G1."""
    assert sandbox.http.get(f"/supplier/users/1/items?{query}").status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"revision": -1, "items": []},
        {"revision": "1", "items": []},
        {"revision": 1, "items": {}},
        {"revision": 1, "items": [{"sku": "a"}]},
        {"revision": 1, "items": [{"sku": "a", "quantity": -1}]},
        {"revision": 1, "items": [{"sku": "a", "quantity": 1}, {"sku": "a", "quantity": 2}]},
    ],
)
def test_a_bad_snapshot_is_a_400(sandbox: SandboxProcess, body: dict[str, Any]) -> None:
    """G1."""
    assert sandbox.http.put("/supplier/users/9", json=body).status_code == 400
