"""The Celery application."""

import os
from collections.abc import Callable
from typing import cast

import django
from celery import Celery
from django.apps import apps
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def _transport(name: str) -> Callable[[], str]:
    """Where kombu finds it, told at the first connection.

    Commands such as ``celery inspect`` connect without importing any task, so nothing has
    loaded the apps that the transport's package wants.
    """

    def found() -> str:
        if not apps.models_ready:
            django.setup()
        return f"operations.broker.redis_transport:{name}"

    return found


# Kombu's types know names only, its code takes functions too.
cast("dict[str, Callable[[], str]]", TRANSPORT_ALIASES).update(
    redis=_transport("Transport"),
    rediss=_transport("Transport"),
    sentinel=_transport("SentinelTransport"),
)

app = Celery("sekali", fixups=["operations.worker.fixup:fixup"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.Task.Request = "operations.worker.request:PlainRequest"
app.autodiscover_tasks()

# By name: it is imported when a worker starts, once the models are there.
app.steps["worker"].update(
    (
        "operations.worker.children:ChildWatch",
        "operations.worker.fork:ForkGuard",
        "operations.worker.name:NodeName",
        "operations.worker.share:PoolShare",
        "operations.worker.soft_limit:SoftLimit",
    )
)
