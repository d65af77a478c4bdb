"""What the README shows is run as it stands there."""

import os
import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection

from inventory import holdings
from inventory.models import Product
from operations import tokens
from tests.lab.processes import Stack
from tests.lab.waiting import wait_until

README = (Path(settings.BASE_DIR) / "README.md").read_text()
_FILE = re.compile(r"<!-- (\S+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.req("A1")
def test_the_operation_in_the_readme_works(stack: Stack, tmp_path: Path) -> None:
    """A1: about thirty lines, and it is accepted, executed once, and answered."""
    files = dict(_FILE.findall(README))
    assert sorted(files) == ["gifts/operations.py", "gifts/urls.py"]
    lines = [line for text in files.values() for line in text.splitlines() if line.strip()]
    assert len(lines) <= 35
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "gifts" / "__init__.py").touch()
    stack.env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{stack.env.get('PYTHONPATH', '')}"
    stack.env["EXTRA_APPS"] = "gifts"
    user = get_user_model().objects.create_user("demo")
    Product.objects.create(sku="pen", name="Pen", price_minor=100, currency="eur", available=5)
    stack.start(sandbox=False)
    headers = {
        "Authorization": f"Bearer {tokens.issue(user, 'test', timedelta(hours=1))}",
        "Idempotency-Key": "gift-1",
    }
    with httpx.Client(base_url=stack.api_url, headers=headers) as client:
        gift = {"sku": "pen", "note": "With love."}
        answers = [client.post("/api/v1/gifts", json=gift) for _ in range(2)]
        assert answers[0].status_code == 202, answers[0].text
        assert answers[1].headers["Idempotent-Replayed"] == "true"
        assert len({answer.json()["id"] for answer in answers}) == 1
        location = answers[0].headers["Location"]
        wait_until(lambda: client.get(location).json()["state"] == "done")
        assert client.get(location).json()["result"] == {"sku": "pen"}
    assert Product.objects.get(sku="pen").available == 4
    assert holdings.holdings_of(user.pk).items == {"pen": 1}
    connection.close()


def test_every_page_that_is_linked_to_exists() -> None:
    """A reader never meets a dead end."""
    root = Path(settings.BASE_DIR)
    for page in [root / "README.md", *root.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
