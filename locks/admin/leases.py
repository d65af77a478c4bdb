"""The leases held now, in Django admin: who holds what since when, and freeing one by force."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from locks.errors import LeaseError, LeaseUnavailable
from locks.held import force_release, held_leases, is_old, why_not
from locks.models import LeaseRow

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[LeaseRow]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(LeaseRow)
class LeaseAdmin(_ModelAdmin):
    """Shows what the configured store holds, whichever it is; rows are not edited.

    To see leases one needs the permission to view them, to free one that to delete them.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def changelist_view(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._release(request)
        return self._list(request)

    def _list(self, request: HttpRequest) -> HttpResponse:
        try:
            leases = held_leases()
        except LeaseUnavailable as error:
            leases = []
            messages.error(request, str(error))
        rows = [{"lease": held, "old": is_old(held), "why_not": why_not(held)} for held in leases]
        context = {
            **self.admin_site.each_context(request),
            "title": "Leases held now",
            "rows": rows,
            "may_release": self.has_delete_permission(request),
            "opts": self.opts,
        }
        return render(request, "locks/leases.html", context)

    def _release(self, request: HttpRequest) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        key, owner = request.POST.get("key", ""), request.POST.get("owner", "")
        reason = request.POST.get("reason", "")
        by = request.user.get_username()
        try:
            freed = force_release(key, by=by, reason=reason, owner=owner)
        except (LeaseError, ValueError) as error:
            messages.error(request, str(error))
        else:
            if freed is None:
                messages.warning(request, f"{owner} does not hold {key} any more.")
            else:
                self._write_down(request, key, f"Freed by force, held by {owner}: {reason}")
                messages.success(request, f"Freed {key}.")
        return HttpResponseRedirect(request.path)

    def _write_down(self, request: HttpRequest, key: str, what: str) -> None:
        LogEntry.objects.create(
            user_id=str(request.user.pk),
            content_type=ContentType.objects.get_for_model(LeaseRow),
            object_id=key,
            object_repr=key[:200],
            action_flag=DELETION,
            change_message=what,
        )
