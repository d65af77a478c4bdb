"""Pages of the catalogue, in the order of the sku."""

from typing import Any, cast

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

from inventory.models import Product
from operations.api.pagination import NewestFirst
from operations.database import persistently

Page = dict[str, Any]


class BySku(NewestFirst):
    """As the other lists are paged, but the cursor stands on a sku, and the page may come out
    of a cache."""

    ordering = "sku"

    def wanted(self, request: Request) -> dict[str, Any]:
        """What :func:`load_page` takes, from the query.

        :raises ValidationError: the cursor is none of ours, or there is no such page size
        """
        self.page_size = self.get_page_size(request)
        self.base_url = request.build_absolute_uri()
        cursor = self.decode_cursor(request)
        return {
            "position": "" if cursor is None else str(cursor.position),
            "backward": int(cursor is not None and cursor.reverse),
            "page_size": self.page_size,
        }

    def body(self, page: Page, results: list[Any]) -> dict[str, Any]:
        """The page as a client sees it, with the addresses of its neighbours."""
        return {
            "results": results,
            "next": self._link(page["next"], backward=False),
            "previous": self._link(page["previous"], backward=True),
            "page_size": self.page_size,
        }

    def decode_cursor(self, request: Request) -> Cursor | None:
        """
        :raises ValidationError: the cursor is none of ours
        """
        try:
            cursor = CursorPagination.decode_cursor(self, request)
        except NotFound:
            cursor = Cursor(offset=0, reverse=False, position=None)
        if cursor is not None and not _is_ours(cursor):
            raise ValidationError({"cursor": ["This is no cursor of this list."]})
        return cursor

    def _link(self, position: str | None, *, backward: bool) -> str | None:
        if position is None:
            return None
        # A cursor stands on whatever the list is ordered by, say the stubs what they like.
        return self.encode_cursor(Cursor(0, backward, cast("Any", position)))


def load_page(position: str, backward: int, page_size: int) -> Page:
    """The skus of the page after a sku, or before it (``backward`` 1), and the skus on which
    the cursors of its neighbours stand; an empty position is the end it begins from."""
    skus = Product.objects.order_by("-sku" if backward else "sku").values_list("sku", flat=True)
    if position:
        skus = skus.filter(**{"sku__lt" if backward else "sku__gt": position})
    found = persistently(lambda: list(skus[: page_size + 1]))
    more, found = len(found) > page_size, found[:page_size]
    if backward:
        found.reverse()
    first, last = (found[0], found[-1]) if found else (position, position)
    beyond = bool(position)
    return {
        "skus": found,
        "next": last if (beyond if backward else more) else None,
        "previous": first if (more if backward else beyond) else None,
    }


def _is_ours(cursor: Cursor) -> bool:
    """One that was given out stands on a sku, which no offset needs to make unique."""
    return bool(cursor.position) and str(cursor.position).isprintable() and not cursor.offset
