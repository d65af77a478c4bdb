"""Review in Django admin: operations and attempts to look at, dead letters to decide on."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from operations import controls, dependencies, registry, review
from operations.audit import Author
from operations.behind_dead import waits_for, with_waiting
from operations.fields import IntegerField, NumberField
from operations.models import (
    ApiToken,
    Attempt,
    AuditEntry,
    DeadLetter,
    IdempotencyRecord,
    KindControl,
    Operation,
)
from operations.registry import UnknownKind

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Model]
    _AttemptInline = admin.TabularInline[Attempt, Operation]
    _ControlForm = forms.ModelForm[KindControl]
else:
    _ModelAdmin, _AttemptInline = admin.ModelAdmin, admin.TabularInline
    _ControlForm = forms.ModelForm


class ReadOnly(_ModelAdmin):
    """The platform writes these rows; people look at them."""

    actions: Any = None
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


class AttemptInline(_AttemptInline):
    model = Attempt
    extra = 0
    can_delete = False
    fields = ("outcome", "category", "message", "worker", "started_at", "finished_at")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(Operation)
class OperationAdmin(ReadOnly):
    list_display = ("id", "kind", "state", "owner", "attempts", "created_at", "finished_at")
    list_filter = ("state", "kind")
    list_select_related = ("owner",)
    search_fields = ("=id", "=resource")
    ordering = ("-created_at",)
    readonly_fields = ("waits_for",)
    inlines = (AttemptInline,)

    @admin.display(description="Waits for a decision about")
    def waits_for(self, operation: Operation) -> str:
        """The dead operation before it, on a resource whose order is kept."""
        return str(waits_for(operation) or "-")


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnly):
    list_display = ("kind", "key", "owner", "operation", "replays", "expires_at")
    list_select_related = ("owner", "operation")
    search_fields = ("=key",)


class DecisionForm(ActionForm):
    """The reason stands beside the choice of the action."""

    reason = forms.CharField(required=False, max_length=1_000)


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnly):
    list_display = (
        "created_at",
        "kind",
        "category",
        "error_type",
        "message",
        "attempts",
        "waiting",
        "state",
    )
    readonly_fields = ("waiting",)
    list_filter = ("state", "category", "kind")
    search_fields = ("=operation__id", "=idempotency_key", "signature")
    ordering = ("-created_at",)
    action_form = DecisionForm
    actions = ("replay", "discard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        letters: QuerySet[Any] = super().get_queryset(request)
        return with_waiting(letters)

    @admin.display(description="Waiting behind it", ordering="waiting")
    def waiting(self, letter: Any) -> int:
        """Operations that are begun only when somebody has decided about this one."""
        return int(letter.waiting)

    @admin.action(description="Replay: try again", permissions=["replay"])
    def replay(self, request: HttpRequest, letters: QuerySet[DeadLetter]) -> None:
        """Send each open letter's operation round again."""
        by, reason = _decider(request)
        done, chosen = 0, list(letters)
        for letter in chosen:
            try:
                done += review.replay(letter, by=by, reason=reason)
            except review.CannotReplay as refusal:
                self.message_user(request, f"{letter}: {refusal}", messages.ERROR)
        self._tell(request, "replayed", done, len(chosen) - done)

    @admin.action(description="Discard: give up, undoing effects", permissions=["discard"])
    def discard(self, request: HttpRequest, letters: QuerySet[DeadLetter]) -> None:
        """Give each open letter's operation up; effects outside are undone first."""
        by, reason = _decider(request)
        if not reason:
            self.message_user(request, "A discard needs a reason.", messages.ERROR)
            return
        done, chosen = 0, list(letters)
        for letter in chosen:
            try:
                done += review.discard(letter, by=by, reason=reason) is not None
            except review.CannotDiscard as refusal:
                self.message_user(request, f"{letter}: {refusal}", messages.ERROR)
        self._tell(request, "discarded, or being compensated", done, len(chosen) - done)

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("operations.replay_deadletter")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("operations.discard_deadletter")

    def _tell(self, request: HttpRequest, what: str, done: int, passed_over: int) -> None:
        self.message_user(request, f"{done} {what}; {passed_over} passed over.")


def _decider(request: HttpRequest) -> tuple[int, str]:
    assert request.user.pk is not None
    return request.user.pk, request.POST.get("reason", "").strip()


class PlainNumber(forms.CharField):
    """A number, read as everywhere else; empty: none."""

    def __init__(self, field: serializers.Field[Any, Any, Any, Any], **options: Any) -> None:
        super().__init__(required=False, **options)
        self._field = field

    def clean(self, value: Any) -> Any:
        """
        :raises forms.ValidationError: it is none
        """
        text = super().clean(value)
        if not text:
            return None
        try:
            return self._field.run_validation(text)
        except ValidationError:
            raise forms.ValidationError("Enter a plain number, such as 0.5, or nothing.") from None


class ControlForm(_ControlForm):
    rate = PlainNumber(NumberField(), help_text="Operations begun in a second, at most.")
    max_running = PlainNumber(IntegerField(), help_text="Operations that run at once, at most.")
    reason = forms.CharField(
        max_length=1_000, widget=forms.Textarea(attrs={"rows": 2}), help_text="For the audit log."
    )

    class Meta:
        model = KindControl
        fields = ("accepting", "paused", "rate", "max_running")

    def clean(self) -> dict[str, Any]:
        """
        :raises forms.ValidationError: a limit cannot work
        """
        values: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            controls.check(rate=values.get("rate"), max_running=values.get("max_running"))
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return values


@admin.register(KindControl)
class KindControlAdmin(_ModelAdmin):
    form: Any = ControlForm
    list_display = ("kind", "accepting", "paused", "rate", "max_running", "shed_until", "outside")
    fields = ("kind", "accepting", "paused", "rate", "max_running", "shed_until", "reason")
    readonly_fields = ("kind", "shed_until")
    ordering = ("kind",)
    actions: Any = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        controls.make_rows()
        return super().get_queryset(request)

    @admin.display(description="what it calls outside")
    def outside(self, control: KindControl) -> str:
        """The breakers of its dependencies."""
        try:
            names = registry.get(control.kind).dependencies
        except UnknownKind:
            return ""
        return ", ".join(f"{one.name}: {_seen(one)}" for one in dependencies.registered(names))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: ARG002
        values = {name: form.cleaned_data[name] for name in ControlForm.Meta.fields}
        author = Author(request.user.get_username(), request.user.pk)
        controls.change(obj.kind, author, form.cleaned_data["reason"], **values)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


def _seen(dependency: dependencies.Dependency) -> str:
    look = dependency.look()
    if not look.shared:
        return "unknown, the server of the shared state is away"
    return f"{look.word}, {look.rate:g}/s" if look.state == "ramp" else look.word


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    list_display = ("at", "author_name", "action", "subject", "before", "after", "reason")
    list_filter = ("action",)
    search_fields = ("subject", "author_name", "reason")
    ordering = ("-at",)


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    list_display = ("user", "name", "created_at", "expires_at", "revoked_at")
    exclude = ("digest",)
    list_select_related = ("user",)
