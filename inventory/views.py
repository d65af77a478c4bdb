"""A user's inventory, its sync, and the catalogue."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from inventory.caches import INVENTORY, PRODUCT, PRODUCT_PAGE
from inventory.holdings import version_of
from inventory.pages import BySku
from operations.api import schema
from operations.api.authentication import owner_of
from operations.api.conditional import respond, respond_by_content
from operations.api.problem import ApiProblem
from operations.api.submit import SubmitView
from operations.database import persistently

_LONGEST_SKU = 64


class ItemRepresentation(serializers.Serializer[Any]):
    sku = serializers.CharField()
    quantity = serializers.IntegerField(help_text="From the supplier and bought here, together.")


class InventoryRepresentation(serializers.Serializer[Any]):
    """What the user owns. ``version`` grows with every change and makes the ETag."""

    revision = serializers.IntegerField(
        allow_null=True, help_text="Of the supplier's snapshot; null before the first sync."
    )
    version = serializers.IntegerField(help_text="0 while there is nothing to tell.")
    items = ItemRepresentation(many=True)


class ProductRepresentation(serializers.Serializer[Any]):
    """``version`` and ETag are those of the catalogue entry: the stock does not change them."""

    sku = serializers.CharField()
    name = serializers.CharField()
    price = serializers.IntegerField(
        help_text="Of one piece, in the currency's smallest unit (cents)."
    )
    currency = serializers.CharField()
    version = serializers.IntegerField()
    available = serializers.IntegerField(help_text="Pieces that can be bought, as last known.")


class ProductPage(serializers.Serializer[Any]):
    """A page of products, with the addresses of its neighbours."""

    results = ProductRepresentation(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    page_size = serializers.IntegerField()


class InventoryView(APIView):
    """What the user owns."""

    @extend_schema(
        operation_id="inventory_retrieve",
        tags=["inventory"],
        parameters=[schema.IF_NONE_MATCH, *schema.etag_headers(200, 304)],
        responses={
            200: InventoryRepresentation,
            304: schema.NOT_MODIFIED,
            **schema.problems(401, 429, 503),
        },
    )
    def get(self, request: Request) -> Response:
        """All items, by sku. The revision is that of the last snapshot that was applied."""
        found = INVENTORY.get(owner=owner_of(request))
        assert found is not None, "Who has nothing has an empty inventory."
        return respond(request, found, found["version"])


class SyncView(SubmitView):
    """Bring the inventory up to date with the supplier. The version is the inventory's."""

    kind = "inventory.sync"
    has_version = True

    def current_version(self, request: Request, _data: dict[str, Any]) -> int | None:
        return persistently(lambda: version_of(owner_of(request)))


class ProductList(APIView):
    """The catalogue."""

    @extend_schema(
        operation_id="products_list",
        tags=["products"],
        parameters=[
            OpenApiParameter("cursor", description="From next or previous of another page."),
            OpenApiParameter(
                "page_size",
                OpenApiTypes.INT,
                description=f"1 to {BySku.max_page_size}, default {BySku.page_size}.",
            ),
            schema.IF_NONE_MATCH,
            schema.etag_header(200, 304),
        ],
        responses={
            200: ProductPage,
            304: schema.NOT_MODIFIED,
            **schema.problems(400, 401, 429, 503),
        },
    )
    def get(self, request: Request) -> Response:
        """All products, by sku."""
        pages = BySku()
        page = PRODUCT_PAGE.get(**pages.wanted(request))
        assert page is not None, "An empty page is a page."
        products = PRODUCT.get_many({"sku": sku} for sku in page["skus"])
        return respond_by_content(
            request, pages.body(page, [product for product in products if product is not None])
        )


class ProductDetail(APIView):
    """One entry of the catalogue."""

    @extend_schema(
        operation_id="products_retrieve",
        tags=["products"],
        parameters=[schema.IF_NONE_MATCH, *schema.etag_headers(200, 304)],
        responses={
            200: ProductRepresentation,
            304: schema.NOT_MODIFIED,
            **schema.problems(401, 404, 429, 503),
        },
    )
    def get(self, request: Request, sku: str) -> Response:
        """The entry and its stock. A 304 says that the entry is unchanged, not the stock."""
        could_be = sku.isprintable() and len(sku) <= _LONGEST_SKU
        product = PRODUCT.get(sku=sku) if could_be else None
        if product is None:
            raise ApiProblem(404, "not_found", f"There is no product {sku[:64]!a}.")
        return respond(request, product, product["version"])
