"""Inventory and catalogue out of the cache: what clients see, and what it costs."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from inventory.caches import INVENTORY, PRODUCT, PRODUCT_PAGE
from inventory.models import Product
from locks.cache import loads, records
from locks.models import InvalidationRecord
from tests.inventory.client import Api
from tests.inventory.test_sync import shared_sandbox, supplier, sync, tell
from tests.lab.processes import Stack
from tests.lab.services import ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.api.client import Client as HttpClient
from tests.operations.api.client import new_client, timed
from tests.sandbox.process import SandboxProcess

__all__ = ["shared_sandbox", "supplier"]


@pytest.fixture
def api(
    database: str, broker: ValkeyServer, locks: ValkeyServer, cache_server: ValkeyServer
) -> Api:
    """Of a user, on a database that commits; the catalogue has three products."""
    for sku in ("a", "b", "c"):
        Product.objects.create(
            sku=sku, name=f"Thing {sku}", price_minor=250, currency="eur", available=10
        )
    return Api("demo")


@pytest.fixture
def admin(api: Api) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def save(admin: Client, product: Product | None = None, **changes: Any) -> None:
    """Save a product, by default a new one, in the admin."""
    form = {"name": "N", "price_minor": 250, "currency": "eur", "restock": "", **changes}
    where = "add" if product is None else f"{product.pk}/change"
    answer = admin.post(f"/admin/inventory/product/{where}/", form)
    assert answer.status_code == 302, answer.content


@pytest.mark.parametrize("path", ["inventory", "products", "products/a", "products?page_size=2"])
def test_what_is_cached_costs_no_statement_beside_the_tokens(api: Api, path: str) -> None:
    """E2: also when it is unchanged for the client."""
    first = api.get(path)
    for headers in ({}, {"If_None_Match": first["ETag"]}):
        with CaptureQueriesContext(connection) as statements:
            answer = api.get(path, **headers)
        assert len(statements) == 1, [query["sql"] for query in statements]
        assert answer["ETag"] == first["ETag"]
        assert answer.content == (b"" if headers else first.content)
        assert answer.status_code == (304 if headers else 200)


def test_a_list_of_products_costs_two_statements_when_nothing_is_cached(api: Api) -> None:
    """E2: the skus of the page, and all products of it together."""
    with CaptureQueriesContext(connection) as statements:
        assert len(api.get("products").json()["results"]) == 3
    assert len(statements) == 1 + 2


def test_a_sync_is_seen_at_once(api: Api, supplier: SandboxProcess) -> None:
    """E2 G1: and by its owner's readers only."""
    other = Api("other")
    assert api.get("inventory").json()["version"] == 0
    etag = other.get("inventory")["ETag"]
    for revision in (7, 8):
        tell(supplier, revision, {"a": revision})
        assert sync().state == "done"
        answer = api.get("inventory").json()
        assert answer["revision"] == revision
        assert answer["items"] == [{"sku": "a", "quantity": revision}]
    assert other.get("inventory", If_None_Match=etag).status_code == 304


def test_what_the_admin_changes_is_seen_at_once(api: Api, admin: Client) -> None:
    """E2: entry and stock, alone and in the list."""
    api.get("products")
    product = Product.objects.get(sku="b")
    save(admin, product, price_minor=300)
    assert api.get("products/b").json()["price"] == 300
    assert api.get("products").json()["results"][1]["price"] == 300
    save(admin, product, price_minor=300, restock=5)
    assert api.get("products").json()["results"][1]["available"] == 15
    assert api.get("products/b").json()["available"] == 15


def test_a_new_product_is_seen_at_once(api: Api, admin: Client) -> None:
    """E2 E6: although it was asked for before, and on every page."""
    assert api.get("products/aa").status_code == 404
    assert [one["sku"] for one in api.get("products?page_size=2").json()["results"]] == ["a", "b"]
    save(admin, sku="aa")
    assert api.get("products/aa").status_code == 200
    assert [one["sku"] for one in api.get("products?page_size=2").json()["results"]] == ["a", "aa"]
    keys = InvalidationRecord.objects.values_list("key", flat=True)
    assert set(keys) == {PRODUCT.key(sku="aa"), PRODUCT_PAGE.every_key()}


def test_the_etag_of_a_list_covers_all_that_it_shows(api: Api, admin: Client) -> None:
    """A8: the stock too, and the links."""
    first = api.get("products?page_size=2")
    assert api.get("products?page_size=2", If_None_Match=first["ETag"]).status_code == 304
    assert api.get("products", If_None_Match=first["ETag"]).status_code == 200
    save(admin, Product.objects.get(sku="a"), name="Thing a", restock=1)
    again = api.get("products?page_size=2", If_None_Match=first["ETag"])
    assert again.status_code == 200
    assert again["ETag"] != first["ETag"]


def test_the_form_of_what_is_cached_belongs_to_its_revision(api: Api) -> None:
    """E6: two versions of the code share a cache during a deploy. So who changes a form here
    raises the ``revision`` of the entry, too, and neither version meets the other's values."""
    product = PRODUCT.get(sku="a")
    page = PRODUCT_PAGE.get(position="", backward=0, page_size=2)
    inventory = INVENTORY.get(owner=api.user)
    assert product is not None
    assert page is not None
    assert inventory is not None
    assert (PRODUCT.keys.prefix, sorted(product)) == (
        "product@1",
        ["available", "currency", "name", "price", "sku", "version"],
    )
    assert (PRODUCT_PAGE.keys.prefix, sorted(page)) == (
        "product-page@1",
        ["next", "previous", "skus"],
    )
    assert (INVENTORY.keys.prefix, sorted(inventory)) == (
        "inventory@1",
        ["items", "revision", "version"],
    )


def test_too_many_who_load_are_answered_with_503(api: Api, settings: Settings) -> None:
    """E7: soon, and with the time after which to ask again; who finds it cached is not."""
    settings.CACHE_LOADS, settings.CACHE_LOAD_WAIT = 1, 0.05
    cached = api.get("products/a").json()
    over, taken = Event(), Event()

    def hold() -> None:
        with loads.place():
            taken.set()
            over.wait(20)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        taken.wait(20)
        try:
            refused = api.get("inventory")
            assert api.get("products/a").json() == cached
        finally:
            over.set()
    assert (refused.status_code, refused["Retry-After"]) == (503, "1")
    assert refused.json()["type"].endswith(":unavailable")
    assert api.get("inventory").status_code == 200


def test_a_precondition_is_checked_against_the_database(api: Api) -> None:
    """A9: not against what is cached, which nobody has invalidated here."""
    etag = api.get("products/a")["ETag"]
    Product.objects.update(price_minor=2)
    assert api.get("products/a")["ETag"] == etag
    assert api.post("purchases", {"sku": "a"}, If_Match=etag).status_code == 412
    assert api.post("purchases", {"sku": "a"}, If_Match='"2"').status_code == 202


# --- over HTTP, with the cache away -------------------------------------------------------


@pytest.fixture
def served(stack: Stack) -> Stack:
    """An API on its own process."""
    for number in range(30):
        Product.objects.create(
            sku=f"sku-{number:02}", name="N", price_minor=1, currency="eur", available=1
        )
    return stack.start(apis=1, workers=0, dispatchers=0, sandbox=False)


@pytest.mark.parametrize("state", ["frozen", "killed"])
def test_without_the_cache_every_answer_is_right_and_in_time(served: Stack, state: str) -> None:
    """E7: one time-out at most in a request, although limit, page and products all want the
    cache; and eight readers at once do not change that."""
    paths = ["/api/v1/products", "/api/v1/inventory", "/api/v1/products/sku-07"]
    cache = served.lab.cache
    with new_client(served.api_url) as client:
        warm = [client.get(path).json() for path in paths]
        if state == "frozen":
            cache.stop()
        else:
            cache.kill()
        first = client.get(paths[0])
        assert first.json() == warm[0]
        assert timed(first) < 0.25 + 0.25
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(client.get, paths * 20))
        assert [answer.json() for answer in answers] == warm * 20
        took = sorted(timed(answer) for answer in answers)
        assert took[len(took) // 2] < 0.25
        Product.objects.filter(sku="sku-07").update(available=9)
        assert client.get(paths[2]).json()["available"] == 9
        cache.recover()
        etag = client.get(paths[2]).headers["ETag"]
        assert client.get(paths[2], {"If-None-Match": etag}).status_code == 304


@pytest.mark.full
@pytest.mark.timeout(120)
def test_whatever_becomes_of_the_cache_all_readers_are_right_again_soon(served: Stack) -> None:
    """E4 E7: it is emptied, frozen, killed, started anew in the middle of writes; two APIs
    answer all the while, and nobody is told what never was."""
    served.add_api()
    served.add_dispatcher()
    statuses: set[int] = set()
    written, wrong = 1, []
    over = Event()

    def read(client: HttpClient) -> int:
        answer = client.get("/api/v1/products/sku-07")
        statuses.add(answer.status_code)
        available: int = answer.json()["available"]
        if not 1 <= available <= written + 1:
            wrong.append(available)
        return available

    def write() -> None:
        nonlocal written
        with transaction.atomic():
            Product.objects.filter(sku="sku-07").update(available=written + 1)
            PRODUCT.invalidate(sku="sku-07")
        written += 1

    def go_on(client: HttpClient) -> None:
        while not over.wait(0.05):
            read(client)

    with ExitStack() as stack:
        clients = [stack.enter_context(new_client(url)) for url in served.api_urls]
        pool = stack.enter_context(ThreadPoolExecutor(len(clients)))
        going = [pool.submit(go_on, client) for client in clients]
        try:
            for what in ("flush", "stop", "kill", "restart"):
                for number in range(20):
                    write()
                    if number == 5:
                        getattr(served.lab.cache, what)()
                served.lab.cache.recover()
                wait_until(lambda: {read(client) for client in clients} == {written}, timeout=8)
                wait_until(lambda: records.pending().number == 0, timeout=15)
        finally:
            over.set()
        for reader in going:
            reader.result(20)
    assert statuses == {200}
    assert wrong == []
