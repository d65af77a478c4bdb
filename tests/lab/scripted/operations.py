"""The scripted kinds.

``script`` holds one step for each attempt (the last one repeats):

=================  ==================================================================
``ok``             make the effect and finish
``refuse``         raise Refused
``later:SECONDS``  raise NotReady
``dependency``     raise DependencyError("sandbox")
``listed``         raise LookupError, which is in ``autoretry_for``
``bug``            raise RuntimeError, after the effect was made
``payload``        raise BadPayload
``sleep:SECONDS``  sleep, then as ``ok``
``spin:SECONDS``   keep the processor busy, then as ``ok``
``kill``           SIGKILL to this very process, after the effect was made
``exit``           ``os._exit(3)``
``system-exit``    ``sys.exit(3)``
``close``          close the database connection, then go on as ``ok``
``segfault``       read from address 0
``eat:MEGABYTES``  use that much memory, give it back, then as ``ok``
``swallow:SECS``   sleep, and ignore whatever interrupts it, then as ``ok``
``query:SECONDS``  sleep in the database, then as ``ok``
``raise:CODE``     a statement by itself that fails with this SQLSTATE, then as ``ok``
``fork``           fork; both go on as ``ok``
=================  ==================================================================
"""

import ctypes
import os
import signal
import sys
import time
from typing import Any

from django.db import connection
from django.db.models import F
from rest_framework import serializers

from operations import BadPayload, Claim, DependencyError, NotReady, Refused, operation
from operations.database import persistently
from operations.fields import IntegerField
from tests.lab.scripted.caches import COUNTER
from tests.lab.scripted.models import Counter, Effect

Payload = dict[str, Any]


class Script(serializers.Serializer[Any]):
    script = serializers.ListField(
        child=serializers.CharField(max_length=50), default=["ok"], max_length=20
    )
    label = serializers.CharField(  # type: ignore[assignment]  # a field may be called so
        max_length=100, default="", allow_blank=True
    )
    on = serializers.CharField(max_length=100, default="", allow_blank=True)
    number = IntegerField(default=0)
    extra = serializers.JSONField(default=None, allow_null=True)
    client_time = serializers.CharField(max_length=50, required=False)


def _step(claim: Claim, payload: Payload) -> str:
    script = payload["script"]
    return str(script[min(claim.attempt, len(script)) - 1])


def _make_effect(claim: Claim, payload: Payload) -> None:
    Effect.objects.create(operation_id=claim.id, epoch=claim.epoch, label=payload["label"])


def _play(claim: Claim, payload: Payload) -> None:  # noqa: C901, PLR0912  (one branch a step)
    name, _, argument = _step(claim, payload).partition(":")
    match name:
        case "ok":
            pass
        case "refuse":
            raise Refused("scripted", "The script says no.")
        case "later":
            raise NotReady(float(argument or 1), "The script says later.")
        case "dependency":
            raise DependencyError("sandbox", f"no answer to call {claim.epoch}")
        case "listed":
            raise LookupError("a listed exception")
        case "bug":
            _make_effect(claim, payload)
            raise RuntimeError("a bug in the script")
        case "payload":
            raise BadPayload("the script calls itself bad")
        case "sleep":
            time.sleep(float(argument))
        case "spin":
            end = time.monotonic() + float(argument)
            while time.monotonic() < end:
                pass
        case "kill":
            _make_effect(claim, payload)
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "system-exit":
            sys.exit(3)
        case "close":
            connection.close()
        case "segfault":
            ctypes.string_at(0)
        case "eat":
            bytearray(int(argument) * 1024 * 1024)
        case "swallow":
            _sleep_through(float(argument))
        case "query":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(%s)", [float(argument)])
        case "raise":
            persistently(lambda: _raise(argument))
        case "fork":
            os.fork()
        case _:
            raise BadPayload(f"unknown step {name}")


def _raise(code: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '{code}'; END $$")


@operation(
    "scripted.local",
    serializer=Script,
    payload_revision=int(os.environ.get("SCRIPTED_REVISION", "1")),
    resource="{on}",
    autoretry_for=(LookupError,),
    incidental=("client_time",),
)
def local(claim: Claim, payload: Payload) -> Payload:
    """Local effects only."""
    _play(claim, payload)
    _make_effect(claim, payload)
    return {"label": payload["label"]}


def _sleep_through(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.1)
        except BaseException:  # noqa: BLE001, S112  (as badly written handlers do)
            continue


def _undo(claim: Claim, payload: Payload) -> None:
    with claim.fenced():
        Effect.objects.filter(operation_id=payload["operation"]).delete()
        claim.finish()


@operation(
    "scripted.strict-split",
    serializer=Script,
    resource="{on}",
    order="fifo",
    behind_dead="wait",
    atomic=False,
    compensate=_undo,
)
@operation(
    "scripted.split",
    serializer=Script,
    resource="{on}",
    atomic=False,
    dependencies=("sandbox",),
    incidental=("client_time",),
    compensate=_undo,
)
def split(claim: Claim, payload: Payload) -> None:
    """An effect, a step outside any transaction, and the end."""
    with claim.fenced():
        if not Effect.objects.filter(operation_id=claim.id, label="reserved").exists():
            Effect.objects.create(operation_id=claim.id, epoch=claim.epoch, label="reserved")
    _play(claim, payload)
    with claim.fenced():
        _make_effect(claim, payload)
        claim.finish({"label": payload["label"]})


@operation("scripted.strict", serializer=Script, resource="{on}", order="fifo", behind_dead="wait")
@operation("scripted.fifo", serializer=Script, resource="{on}", order="fifo")
def fifo(claim: Claim, payload: Payload) -> Payload:
    """In the order of acceptance on one resource."""
    _play(claim, payload)
    _make_effect(claim, payload)
    return {"label": payload["label"]}


@operation("scripted.hasty", serializer=Script, resource="{on}", soft_time_limit=1, time_limit=2)
def hasty(claim: Claim, payload: Payload) -> Payload:
    """With narrow time limits."""
    _play(claim, payload)
    _make_effect(claim, payload)
    return {"label": payload["label"]}


@operation("scripted.personal", serializer=Script, personal=("label",), max_retries=0)
def personal(_claim: Claim, payload: Payload) -> Payload:
    """Fails, and says what nobody should read."""
    raise DependencyError("sandbox", f"{payload['label']} cannot be paid with sk_live_1234567890")


@operation(
    "scripted.cached",
    serializer=Script,
    invalidates=(COUNTER.on(name="{label}"),),
)
def cached(claim: Claim, payload: Payload) -> None:
    """Counts up the counter of that label, which is cached; ``extra`` is one more to invalidate."""
    _play(claim, payload)
    Counter.objects.filter(name=payload["label"]).update(value=F("value") + 1)
    if payload["extra"]:
        COUNTER.invalidate(name=payload["extra"])


@operation(
    "scripted.cached-split",
    serializer=Script,
    atomic=False,
    invalidates=(COUNTER.on(name="{label}"),),
)
def cached_split(claim: Claim, payload: Payload) -> None:
    """Counts up twice, in two fenced transactions, with the script in between."""
    with claim.fenced():
        Counter.objects.filter(name=payload["label"]).update(value=F("value") + 1)
    _play(claim, payload)
    with claim.fenced():
        Counter.objects.filter(name=payload["label"]).update(value=F("value") + 1)
        claim.finish()
