"""The outside supplier, who knows what each user owns.

Its answer comes in pages, each with the revision of the snapshot it was cut from; pages of
two revisions are never put together.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from django.conf import settings

from operations.dependencies.deadline import within
from operations.dependencies.http import BoundedClient
from operations.dependencies.retry_after import seconds_of

#: Seconds to wait for a connection.
CONNECT_TIMEOUT = 2.0
PAGE_SIZE = 500
MAX_PAGES = 200
#: Bytes of one page.
MAX_PAGE_BYTES = 1024 * 1024
#: How often a fetch starts again because the snapshot changed under it.
MAX_RESTARTS = 3
_HTTP = BoundedClient(
    headers={"Accept-Encoding": "identity"}, timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT)
)
_LARGEST_REVISION = 2**63 - 1
_LARGEST_QUANTITY = 2**31 - 1
_LONGEST_SKU = 64


@dataclass(frozen=True)
class Snapshot:
    """What a user owned at one revision: pieces by sku."""

    revision: int
    items: Mapping[str, int]


class SupplierError(Exception):
    """No snapshot came back; the text says why."""


class SupplierUnavailable(SupplierError):
    """No answer in time, or none that can be used: try again later.

    ``retry_after`` is in seconds, above 0 when the supplier named a time.
    """

    retry_after = 0.0


class SupplierRefused(SupplierError):
    """The supplier answered and will not tell (4xx): trying again would not help."""


class _ChangedError(Exception):
    """A page belongs to another revision than the page before it."""


def fetch(user: str) -> Snapshot:
    """All that the supplier knows of a user, from one revision.

    Takes at most the setting ``SUPPLIER_TIMEOUT`` (seconds) for all pages and restarts
    together. Raises :class:`SupplierUnavailable` or :class:`SupplierRefused`.
    """
    with within(float(settings.SUPPLIER_TIMEOUT)):
        for _ in range(1 + MAX_RESTARTS):
            try:
                return _fetch(user)
            except _ChangedError:
                continue
    raise SupplierUnavailable(f"The snapshot changed during {1 + MAX_RESTARTS} fetches in a row.")


def _fetch(user: str) -> Snapshot:
    revision: int | None = None
    items: dict[str, int] = {}
    for page in range(1, MAX_PAGES + 1):
        content = _page(user, page)
        found = _whole(content.get("revision"), "revision", _LARGEST_REVISION)
        if revision is not None and found != revision:
            raise _ChangedError
        revision = found
        _add(items, content.get("items"))
        following = content.get("next")
        if following is None:
            return Snapshot(revision, items)
        if following != page + 1:
            raise _unusable(f"page {page} is followed by page {following!r}")
    raise _unusable(f"more than {MAX_PAGES} pages")


def _page(user: str, page: int) -> dict[str, Any]:
    url = f"{settings.SUPPLIER_URL.rstrip('/')}/users/{quote(user, safe='')}/items"
    question = {"page": page, "page_size": PAGE_SIZE}
    try:
        with _HTTP.of_this_process().stream("GET", url, params=question) as response:
            if response.status_code != 200:
                raise _refusal(response)
            return _read(_body(response))
    except httpx.TimeoutException as error:
        raise SupplierUnavailable(
            f"The supplier took longer than {settings.SUPPLIER_TIMEOUT} s: {error!r}."
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SupplierUnavailable(f"No answer from the supplier: {error!r}.") from error


def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    # Undecoded: a compressed body was not asked for, and may be far larger than it looks.
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > MAX_PAGE_BYTES:
            raise _unusable(f"a page of more than {MAX_PAGE_BYTES} bytes")
    return bytes(body)


def _read(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _unusable(f"not JSON ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise _unusable("not a JSON object")
    return content


def _add(items: dict[str, int], listed: Any) -> None:
    if not isinstance(listed, list):
        raise _unusable("items is not a list")
    for item in listed:
        if not isinstance(item, dict):
            raise _unusable("an item is not an object")
        sku = item.get("sku")
        if not isinstance(sku, str) or not 0 < len(sku) <= _LONGEST_SKU or not sku.isprintable():
            raise _unusable("an item has no proper sku")
        if sku in items:
            raise _unusable(f"{sku} is listed twice")
        quantity = item.get("quantity")
        items[sku] = _whole(quantity, f"the quantity of {sku}", _LARGEST_QUANTITY)


def _whole(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _unusable(f"{name} is not a whole number from 0 to {most}")
    return value


def _refusal(response: httpx.Response) -> SupplierError:
    status = response.status_code
    # 401 is about this side's access, 408, 425 and 429 are about the moment.
    if 400 <= status < 500 and status not in {401, 408, 425, 429}:
        return SupplierRefused(f"The supplier refuses with status {status}.")
    error = SupplierUnavailable(f"The supplier answered with status {status}.")
    error.retry_after = seconds_of(response.headers.get("Retry-After"))
    return error


def _unusable(what: str) -> SupplierUnavailable:
    return SupplierUnavailable(f"Unusable answer from the supplier: {what}.")
