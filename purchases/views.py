"""Buying something, and looking at what was bought."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from inventory.catalogue import catalogue
from inventory.models import Product
from operations.api import schema
from operations.api.authentication import owner_of
from operations.api.conditional import respond
from operations.api.problem import ApiProblem
from operations.api.submit import SubmitView
from operations.database import persistently
from purchases.caches import PURCHASE
from purchases.representation import PurchaseRepresentation


class PurchaseView(SubmitView):
    """Buy pieces of a product. The version is that of the product's catalogue entry."""

    kind = "purchases.purchase"
    has_version = True

    def check(self, _request: Request, data: dict[str, Any]) -> None:
        if not persistently(lambda: catalogue.knows(data["sku"])):
            raise ValidationError({"sku": [ErrorDetail("There is no such product.", "unknown")]})

    def current_version(self, _request: Request, data: dict[str, Any]) -> int | None:
        versions = Product.objects.filter(sku=data["sku"]).values_list("version", flat=True)
        return persistently(versions.first)


class PurchaseDetail(APIView):
    """One purchase."""

    @extend_schema(
        operation_id="purchases_retrieve",
        tags=["purchases"],
        parameters=[schema.IF_NONE_MATCH, *schema.etag_headers(200, 304)],
        responses={
            200: PurchaseRepresentation,
            304: schema.NOT_MODIFIED,
            **schema.problems(401, 404, 429, 503),
        },
    )
    def get(self, request: Request, id: uuid.UUID) -> Response:
        """The purchase as it is now. Its id is the ``purchase_id`` of the operation's result."""
        purchase = PURCHASE.get(owner=owner_of(request), id=id)
        if purchase is None:
            raise ApiProblem(404, "not_found", f"You have no purchase {id}.")
        return respond(request, purchase, purchase["version"])
