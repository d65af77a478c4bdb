"""The invalidations that wait, in Django admin: of what, and for how long already."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse

from locks.cache import records
from locks.models import InvalidationRecord

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[InvalidationRecord]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(InvalidationRecord)
class InvalidationAdmin(_ModelAdmin):
    """Shows records; the dispatcher alone takes them away."""

    list_display = ("key", "age", "recorded_at", "due_at")
    list_display_links = None
    ordering = ("recorded_at",)
    search_fields = ("key",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[InvalidationRecord]:
        # By the database's clock, which has written the time.
        age = ExpressionWrapper(Now() - F("recorded_at"), output_field=DurationField())
        return super().get_queryset(request).annotate(age=age)

    @admin.display(description="age", ordering="-recorded_at")
    def age(self, record: InvalidationRecord) -> str:
        age: timedelta = record.age  # type: ignore[attr-defined]
        return f"{age.total_seconds():.1f} s"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if self.has_view_permission(request):
            pending = records.pending()
            if pending.is_late:
                messages.warning(request, f"The oldest waits for {pending.oldest:.0f} s. {_WHY}")
        title = {"title": "Invalidations that wait for the cache", **(extra_context or {})}
        return super().changelist_view(request, title)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


_WHY = "The cache is away or refuses writes, or no dispatcher runs; old values may be told."
