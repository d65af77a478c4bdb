"""Pages of a list that grows at its head, by cursors that no new row can shift."""

import re
from typing import Any, NoReturn

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

_SEQ = re.compile(r"[0-9]{1,19}", re.ASCII)
_PAGE_SIZE = re.compile(r"[0-9]{1,4}", re.ASCII)


class NewestFirst(CursorPagination):
    """By ``seq``, the order of acceptance."""

    ordering = "-seq"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def decode_cursor(self, request: Request) -> Cursor | None:
        """
        :raises ValidationError: the cursor is none of ours
        """
        try:
            cursor = super().decode_cursor(request)
        except NotFound:
            _refuse("cursor", "This is no cursor of this list.")
        if cursor is not None and (cursor.offset or not _is_seq(str(cursor.position or ""))):
            _refuse("cursor", "This is no cursor of this list.")
        return cursor

    def get_page_size(self, request: Request) -> int:
        """
        :raises ValidationError: not a number between 1 and the largest page
        """
        given = request.query_params.get("page_size")
        if given is None:
            return self.page_size
        if not _PAGE_SIZE.fullmatch(given) or not 0 < int(given) <= self.max_page_size:
            _refuse("page_size", f"A page has 1 to {self.max_page_size} entries.")
        return int(given)

    def get_paginated_response(self, data: Any) -> Response:
        return Response(
            {
                "results": data,
                "next": self.get_next_link(),
                "previous": self.get_previous_link(),
                "page_size": self.page_size,
            },
            headers={"Cache-Control": "private, no-cache"},
        )


def _is_seq(text: str) -> bool:
    return bool(_SEQ.fullmatch(text)) and int(text) < 2**63


def _refuse(name: str, why: str) -> NoReturn:
    raise ValidationError({name: [why]})
