"""``manage.py dispatch``: the dispatcher, until SIGTERM or SIGINT."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from operations.broker import get_broker
from operations.checks import TAGS
from operations.dispatcher import Dispatcher


class Command(BaseCommand):
    help = "Send what is due to the broker and rescue what lost its worker. Any number may run."
    requires_system_checks = TAGS

    def handle(self, *_: Any, **__: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        Dispatcher(get_broker()).run(stop.wait)
