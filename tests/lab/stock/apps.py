"""For workers started with ``EXTRA_APPS=tests.lab.scripted,tests.lab.stock``."""

from typing import Any

from celery import current_app
from django.apps import AppConfig
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import QoS

from operations.crashpoints import reach

#: A crash point: the message is out of its queue, and nowhere else.
POPPED = "stock.popped"


class StockApp(AppConfig):
    name = "tests.lab.stock"
    label = "stock"

    def ready(self) -> None:
        TRANSPORT_ALIASES["redis"] = "kombu.transport.redis:Transport"
        current_app.conf.worker_consumer = "celery.worker.consumer:Consumer"
        append: Any = QoS.append

        def reach_and_append(qos: QoS, *args: object) -> None:
            reach(POPPED)
            append(qos, *args)

        QoS.append = reach_and_append  # type: ignore[method-assign]
