"""For workers started with ``EXTRA_APPS=tests.lab.scripted,tests.lab.stock``."""

from celery import current_app
from django.apps import AppConfig
from kombu.transport import TRANSPORT_ALIASES


class StockApp(AppConfig):
    name = "tests.lab.stock"
    label = "stock"

    def ready(self) -> None:
        TRANSPORT_ALIASES["redis"] = "kombu.transport.redis:Transport"
        current_app.conf.worker_consumer = "celery.worker.consumer:Consumer"
