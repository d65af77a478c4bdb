"""What of the inventory is cached, and from where it is loaded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inventory.holdings import holdings_of
from inventory.models import Product
from inventory.pages import BySku, load_page
from locks.cache import CacheEntry
from operations.database import persistently

Representation = dict[str, Any]


def _load_inventory(owner: int) -> Representation:
    found = persistently(lambda: holdings_of(owner))
    return {
        "revision": found.revision,
        "version": found.version,
        "items": [{"sku": sku, "quantity": count} for sku, count in found.items.items()],
    }


def _load_products(many: Sequence[Mapping[str, Any]]) -> list[Representation | None]:
    skus = [dimensions["sku"] for dimensions in many]
    products = persistently(lambda: list(Product.objects.filter(sku__in=skus)))
    found = {product.sku: _represented(product) for product in products}
    return [found.get(sku) for sku in skus]


def _load_product(sku: str) -> Representation | None:
    return _load_products([{"sku": sku}])[0]


def _represented(product: Product) -> Representation:
    return {
        "sku": product.sku,
        "name": product.name,
        "price": product.price_minor,
        "currency": product.currency,
        "version": product.version,
        "available": product.available - product.reserved,
    }


def _first_products() -> Iterator[Mapping[str, Any]]:
    first = load_page(position="", backward=0, page_size=BySku.page_size)
    return ({"sku": sku} for sku in first["skus"])


INVENTORY: CacheEntry[Representation] = CacheEntry(
    "inventory",
    key="{owner}",
    load=_load_inventory,
    ttl=60,
    tolerates=60,
    source="the owner's rows in inventory_inventory and inventory_owneditem",
)

#: The stock changes with every purchase, so pages hold no products but name them.
PRODUCT: CacheEntry[Representation] = CacheEntry(
    "product",
    key="{sku}",
    load=_load_product,
    load_many=_load_products,
    ttl=30,
    stale=30,
    negative=5,
    tolerates=60,
    source="the row in inventory_product",
    invalidated_by=(
        "purchases.purchase.compensate",
        "purchases.repair",
        "the admin",
        "manage.py demo",
    ),
    hot=_first_products,
)

PRODUCT_PAGE: CacheEntry[Representation] = CacheEntry(
    "product-page",
    key="{position}:{backward}:{page_size}",
    load=load_page,
    ttl=30,
    stale=30,
    tolerates=60,
    versioned=True,
    source="the skus in inventory_product",
    invalidated_by=("the admin, for a new product", "manage.py demo"),
    hot=lambda: [{"position": "", "backward": 0, "page_size": BySku.page_size}],
)
