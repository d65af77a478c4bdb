"""Conditional requests on what is cached, and who may keep the answers."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from inventory.holdings import apply_snapshot
from inventory.models import Product
from inventory.supplier import Snapshot
from operations.models import Operation
from tests.inventory.client import Api

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("broker", "cache_server"),
]

PATHS = ["inventory", "products/a", "products"]


@pytest.fixture
def api() -> Api:
    Product.objects.create(sku="a", name="A", price_minor=1, currency="eur", available=1)
    return Api("demo")


def vary(answer: Any) -> set[str]:
    return {name.strip() for name in answer["Vary"].lower().split(",")}


UNCHANGED = ["{}", "W/{}", '"x", {}', 'W/"x" ,\t{}, "y"', "nonsense, {}", "*", " * "]
CHANGED = ['"x"', '"{}"', "", "nonsense", '"', "W/", ",,,", '*, "x"', "\xff", "9" * 4000]


@pytest.mark.parametrize("path", PATHS)
def test_what_if_none_match_says(api: Api, path: str) -> None:
    """A8: lists, weak tags and the star as RFC 9110 has them; nonsense names nothing."""
    whole = api.get(path)
    for header in UNCHANGED + CHANGED:
        answer = api.get(path, If_None_Match=header.replace("{}", whole["ETag"]))
        assert answer.status_code == (304 if header in UNCHANGED else 200), header
        assert answer.content == (b"" if header in UNCHANGED else whole.content)
        # A 304 has the headers that the 200 would have had.
        for name in ("ETag", "Cache-Control", "Vary"):
            assert answer[name] == whole[name]


@pytest.mark.parametrize("path", PATHS)
def test_head_says_what_get_does_without_the_body(api: Api, path: str) -> None:
    """A8"""
    whole = api.get(path)
    head = api.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("ETag", "Cache-Control", "Vary", "Content-Length"):
        assert head.get(name) == whole.get(name)
    assert api.head(path, If_None_Match=whole["ETag"]).status_code == 304
    assert api.head("products/none").status_code == 404


@pytest.mark.parametrize("path", [*PATHS, "operations", "products/none", "operations/none", "no"])
def test_an_answer_is_kept_for_its_user_alone(api: Api, path: str) -> None:
    """E6 A8: the token is a dimension for caches on the way, too. And an error is not kept,
    nor what another user would be shown."""
    answer = api.get(path)
    assert "authorization" in vary(answer)
    kept = answer["Cache-Control"]
    assert kept == ("private, no-cache" if answer.status_code == 200 else "no-store")
    assert "authorization" in vary(Api("demo").post("inventory/sync"))


def test_two_users_of_one_browser_are_not_shown_each_others_inventory(api: Api) -> None:
    """E6: the second asks with the first one's ETag, which may be its own as well; a cache
    that heeds Vary does not."""
    other = Api("other")
    apply_snapshot(api.user, Snapshot(7, {"secret": 1}), epoch=1)
    apply_snapshot(other.user, Snapshot(7, {"mine": 1}), epoch=2)
    browser = Browser()
    first = browser.get(api, "inventory")
    assert browser.get(api, "inventory") == first, "out of the browser's cache"
    assert browser.not_modified == 1
    assert "mine" in browser.get(other, "inventory")
    assert browser.not_modified == 1


class Browser:
    """The cache of a browser, as far as it matters here (RFC 9111, 4.1 and 4.3)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[str, str]] = {}
        self._vary: dict[str, set[str]] = {}
        self.not_modified = 0

    def get(self, api: Api, path: str) -> str:
        def key() -> tuple[Any, ...]:
            named = self._vary.get(path, set()) & {"authorization"}
            return path, *(api.authorization for _ in named)

        etag, body = self._kept.get(key(), ("", ""))
        answer = api.get(path, **({"If_None_Match": etag} if etag else {}))
        if answer.status_code == 304:
            self.not_modified += 1
            return body
        self._vary[path] = vary(answer)
        body = str(answer.content.decode())
        self._kept[key()] = answer["ETag"], body
        return body


# --- preconditions ------------------------------------------------------------------------

Ask = Callable[..., Any]


def buy(api: Api, body: dict[str, Any], headers: dict[str, str]) -> Any:
    return api.post("purchases", {"sku": "a", **body}, **headers)


def sync(api: Api, body: dict[str, Any], headers: dict[str, str]) -> Any:
    return api.post("inventory/sync", body, **headers)


PRECONDITIONS: list[tuple[str | None, Any, int]] = [
    ('"1"', None, 202),
    ("*", None, 202),
    (" * ", None, 202),
    ('"7", "1"', None, 202),
    ('W/"9", "1"', None, 202),
    (None, 1, 202),
    (None, "1", 202),
    ('"1"', 1, 202),
    ("*", 1, 202),
    ('"2", "1"', 1, 202),
    # What is not that version.
    ('"2"', None, 412),
    ('W/"1"', None, 412),
    ('"01"', None, 412),
    ('"1 "', None, 412),
    ('"-1"', None, 412),
    ('"a"', None, 412),
    ('""', None, 412),
    ('"99999999999999999999"', None, 412),
    ('"\u0661"', None, 412),
    (None, 2, 412),
    (None, 0, 412),
    ("*", 2, 412),
    ('"1"', 2, 412),
    ('"2"', 1, 412),
    # What is no precondition at all.
    ("", None, 400),
    ("1", None, 400),
    ("garbage", None, 400),
    ('"', None, 400),
    (",", None, 400),
    ("garbage", 1, 400),
    (None, "x", 400),
    (None, -1, 400),
    (None, 1.5, 400),
    (None, True, 400),
    (None, [1], 400),
    (None, {}, 400),
    (None, 2**31, 400),
    (None, 10**400, 400),
    ('"1"', "x", 400),
]


@pytest.mark.parametrize("ask", [buy, sync])
def test_what_a_precondition_says(api: Api, ask: Ask) -> None:
    """A9: by header, in the body, or by both, which must both hold; refused, nothing is stored,
    accepted, it is remembered for the worker."""
    apply_snapshot(api.user, Snapshot(7, {"a": 2}), epoch=1)
    for header, expected, status in PRECONDITIONS:
        body = {} if expected is None else {"expected_version": expected}
        with transaction.atomic():
            answer = ask(api, body, {} if header is None else {"If_Match": header})
            stored = list(Operation.objects.values_list("precondition", flat=True))
            transaction.set_rollback(True)
        assert answer.status_code == status, (header, expected, answer.content)
        if status == 202:
            star_alone = header is not None and "*" in header and expected is None
            (promise,) = stored
            assert promise is None if star_alone else 1 in (promise or {})["versions"]
        else:
            assert not stored
        if status == 412:
            assert answer["ETag"] == '"1"'


@pytest.mark.parametrize("ask", [buy, sync])
def test_null_is_no_expected_version(api: Api, ask: Ask) -> None:
    """A9: a client that has lost what it had seen is told so."""
    assert ask(api, {"expected_version": None}, {}).status_code == 400
