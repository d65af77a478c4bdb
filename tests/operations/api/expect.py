"""What every error of the API must look like."""

from typing import Any

import httpx


def problem(response: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """Assert that the answer is this problem, whole; return it."""
    assert response.status_code == status, (response.status_code, response.text[:500])
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:sekali:problem:{name}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body
