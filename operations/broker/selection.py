"""Which broker the settings name."""

import os
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from operations.broker.interface import Broker
from operations.broker.rabbitmq import RabbitBroker
from operations.broker.redis import RedisBroker

_BROKERS: dict[str, type[Broker]] = {
    "redis": RedisBroker,
    "rediss": RedisBroker,
    "sentinel": RedisBroker,
    "amqp": RabbitBroker,
    "amqps": RabbitBroker,
}

# What a parent has made is kept in its forked child: to drop it would shut the parent's
# connections down.
_made: dict[tuple[int, str], Broker] = {}


def get_broker() -> Broker:
    """The broker of this process. Forked children make their own: a socket is not shared."""
    key = os.getpid(), settings.BROKER_URL
    if key not in _made:
        _made[key] = broker_class(settings.BROKER_URL)(settings.BROKER_URL)
    return _made[key]


def broker_class(url: str) -> type[Broker]:
    """
    :raises ImproperlyConfigured: no broker speaks this scheme
    """
    scheme = urlsplit(url).scheme
    try:
        return _BROKERS[scheme]
    except KeyError:
        known = ", ".join(f"{name}://" for name in _BROKERS)
        raise ImproperlyConfigured(
            f"BROKER_URL has the scheme {scheme!r}; known are {known}."
        ) from None
