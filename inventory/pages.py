"""Pages of the catalogue, in the order of the sku."""

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

from operations.api.pagination import NewestFirst


class BySku(NewestFirst):
    """As the other lists are paged, but the cursor stands on a sku."""

    ordering = "sku"

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


def _is_ours(cursor: Cursor) -> bool:
    """One that was given out stands on a sku, which no offset needs to make unique."""
    return bool(cursor.position) and str(cursor.position).isprintable() and not cursor.offset
