"""The Celery application."""

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

TRANSPORT_ALIASES.update(
    redis="operations.broker.redis_transport:Transport",
    rediss="operations.broker.redis_transport:Transport",
    sentinel="operations.broker.redis_transport:SentinelTransport",
)

app = Celery("sekali", fixups=["operations.worker.fixup:fixup"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# By name: it is imported when a worker starts, once the models are there.
app.steps["worker"].update(
    (
        "operations.worker.children:ChildWatch",
        "operations.worker.fork:ForkGuard",
        "operations.worker.share:PoolShare",
    )
)
