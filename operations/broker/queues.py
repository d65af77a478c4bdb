"""The queues in the broker, as everybody declares them."""

from django.conf import settings
from kombu.entity import Queue

from operations.broker.selection import broker_class


def queue(name: str) -> Queue:
    """The declaration of a queue of operations or of housekeeping.

    All processes must declare a queue alike, or RabbitMQ refuses the second.
    """
    arguments = broker_class(settings.BROKER_URL).queue_arguments()
    return Queue(  # type: ignore[no-untyped-call]
        name, routing_key=name, durable=True, queue_arguments=arguments
    )
