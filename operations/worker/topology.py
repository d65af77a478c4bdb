"""Before a worker consumes on RabbitMQ, the place for dead letters must be there.

A worker declares the queues it consumes from and nothing else; a message rejected while
the dead letter exchange is missing is dropped.
"""

from typing import Any

from celery import bootsteps

from operations.broker.rabbitmq_topology import declare_dead_letter


class Topology(bootsteps.StartStopStep):  # type: ignore[misc]
    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, parent: Any) -> bool:
        return bool(parent.conninfo.transport.driver_type == "amqp")

    def start(self, parent: Any) -> None:
        with parent.connection.channel() as channel:
            declare_dead_letter(channel)
