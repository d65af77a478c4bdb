"""Kinds are declared once, and wrong options fail where they are written."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers

from operations import registry
from operations.backoff import JITTER, delay_before_retry
from operations.payload import canonical, fingerprint
from operations.registry import RESOURCE_LIMIT, Kind, UnknownKind, operation


class Inner(serializers.Serializer[Any]):
    depth = serializers.IntegerField(default=1)


class Input(serializers.Serializer[Any]):
    name = serializers.CharField()
    count = serializers.IntegerField(default=1)
    ratio = serializers.FloatField(required=False)
    tags = serializers.ListField(child=serializers.CharField(), default=list)
    inner = Inner(required=False)
    anything = serializers.JSONField(required=False, allow_null=True)
    client_time = serializers.CharField(required=False)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds of these tests are forgotten afterwards."""
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    return iter(())


def declare(name: str = "test.kind", **options: Any) -> Kind:
    operation(name, serializer=Input, **options)(lambda *_: None)
    return registry.get(name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "1 to 100 visible"),
        ({"name": "x" * 101}, "1 to 100 visible"),
        ({"name": "naïve"}, "1 to 100 visible"),
        ({"name": "two words"}, "1 to 100 visible"),
        ({"soft_time_limit": 20, "time_limit": 20}, "must be below"),
        ({"max_retries": -1}, "negative"),
        ({"retry_backoff": ()}, "above 0"),
        ({"retry_backoff": (1, 0)}, "above 0"),
        ({"retry_backoff": -1}, "factor"),
        ({"order": "lifo"}, "lifo"),
        ({"order": "fifo"}, "needs a resource"),
        ({"order": "fifo", "resource": "{id}", "behind_dead": "stop"}, "neither 'pass' nor 'wait'"),
        ({"behind_dead": "wait"}, "needs order='fifo'"),
        ({"key_retention": timedelta(0)}, "positive"),
        ({"resource": "x:{nobody}"}, "nobody"),
        ({"incidental": ["nothing"]}, "nothing"),
    ],
)
def test_an_option_that_cannot_work_fails_at_once(options: dict[str, Any], said: str) -> None:
    """B3: with the kind's name and what to do."""
    with pytest.raises(ImproperlyConfigured, match=said):
        declare(**options)


def test_a_kind_is_declared_once() -> None:
    declare()
    with pytest.raises(ImproperlyConfigured, match="twice"):
        declare()


def test_an_unknown_kind_has_its_own_error() -> None:
    with pytest.raises(UnknownKind):
        registry.get("no.such")


def test_the_decorated_function_stays_callable() -> None:
    @operation("test.callable", serializer=Input)
    def handler(claim: Any, payload: Any) -> str:
        return "called"

    assert handler(None, {}) == "called"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x" * 300, "é" * 200, "日本" * 100, "a" * 248 + "é" * 4])
def test_a_long_resource_stays_within_its_bound_and_distinct(name: str) -> None:
    """A2 B9: whatever a client puts into it, in bytes."""
    kind = declare(resource="thing:{name}")

    def of(text: str) -> str:
        return kind.resource_of(id=1, owner=1, payload={"name": text})

    assert len(of(name).encode()) <= RESOURCE_LIMIT
    assert of(name) != of(name + "x")
    assert of(name) == of(name)


def print_of(kind: Kind, **data: Any) -> str:
    serializer = kind.serializer(data=data)
    serializer.is_valid(raise_exception=True)
    return fingerprint(kind, canonical(serializer))


SAME = [
    ({"name": "a", "count": 2}, {"count": 2, "name": "a"}),
    ({"name": "a"}, {"name": "a", "count": 1}),
    ({"name": "a"}, {"name": "a", "tags": []}),
    ({"name": "a", "count": 2}, {"name": "a", "count": "2"}),
    ({"name": "a", "count": 2}, {"name": "a", "count": 2.0}),
    ({"name": "a", "ratio": 1}, {"name": "a", "ratio": 1.0}),
    ({"name": "a", "anything": {"x": 1, "y": 2}}, {"name": "a", "anything": {"y": 2.0, "x": 1}}),
    ({"name": "a", "inner": {}}, {"name": "a", "inner": {"depth": 1}}),
    ({"name": "a", "client_time": "now"}, {"name": "a", "client_time": "later"}),
]
OTHER = [
    ({"name": "a"}, {"name": "b"}),
    ({"name": "a"}, {"name": "a", "count": 2}),
    ({"name": "a", "tags": ["x", "y"]}, {"name": "a", "tags": ["y", "x"]}),
    ({"name": "a", "anything": 1}, {"name": "a", "anything": "1"}),
    ({"name": "a", "anything": [1, 2]}, {"name": "a", "anything": [2, 1]}),
    ({"name": "a", "anything": None}, {"name": "a"}),
    ({"name": "a", "anything": True}, {"name": "a", "anything": 1}),
    ({"name": "a", "inner": {"depth": 2}}, {"name": "a", "inner": {}}),
    ({"name": "é"}, {"name": "e\u0301"}),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_what_does_not_count_leaves_the_fingerprint(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    """A4 A6."""
    kind = declare(incidental=["client_time"])
    assert print_of(kind, **one) == print_of(kind, **two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_every_value_counts(one: dict[str, Any], two: dict[str, Any]) -> None:
    """A4 A6."""
    kind = declare()
    assert print_of(kind, **one) != print_of(kind, **two)


def test_a_field_added_with_a_default_keeps_old_fingerprints() -> None:
    """A5 A6: a deploy does not make old keys strangers."""

    class Later(Input):
        colour = serializers.CharField(default="red")

    before = declare()
    operation("test.later", serializer=Later)(lambda *_: None)
    assert print_of(before, name="a") == print_of(registry.get("test.later"), name="a")


def test_the_schedule_of_retries_is_kept_and_spread() -> None:
    """B6: 5 s, 15 s, 45 s, 2 min, never earlier, and not all at the same time."""
    schedule = (5, 15, 45, 120)
    for retry, delay in enumerate((*schedule, 120), start=1):
        delays = {delay_before_retry(schedule, retry, jitter=True) for _ in range(200)}
        assert all(delay <= one <= delay * (1 + JITTER) for one in delays)
        assert len(delays) > 100
        assert delay_before_retry(schedule, retry, jitter=False) == delay


def test_a_factor_doubles_up_to_a_bound() -> None:
    """B6: as Celery's retry_backoff, without its instant first retry."""
    assert [delay_before_retry(5, n, jitter=False) for n in (1, 2, 3, 20)] == [5, 10, 20, 600]
