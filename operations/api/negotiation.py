"""This API speaks JSON, whatever ``Accept`` says: a replay is not refused for a header."""

from collections.abc import Iterable

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class JSONAnyway(DefaultContentNegotiation):
    """Chooses only where a view offers more than one form, as the schema does."""

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        offered = list(renderers)
        if len(offered) == 1:
            return offered[0], str(offered[0].media_type)
        chosen: tuple[BaseRenderer, str] = super().select_renderer(request, offered, format_suffix)
        return chosen
