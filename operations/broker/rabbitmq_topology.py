"""Queues and exchanges in RabbitMQ: what is declared, and with what arguments.

They must be the same for every process and every version: RabbitMQ refuses a declaration
that differs from what is there.
"""

from typing import Any

from django.conf import settings

from operations.broker.names import DEAD_LETTER

DEAD_LETTER_EXCHANGE = "sekali.dead_letter"


def task_queue_arguments() -> dict[str, Any]:
    """Replicated, and nothing that is rejected or comes back too often is dropped."""
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": settings.SEKALI_DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD_LETTER_EXCHANGE,
        "x-dead-letter-routing-key": DEAD_LETTER,
        # The message leaves its queue only when it has arrived in the other one.
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def dead_letter_queue_arguments() -> dict[str, Any]:
    # From 4.0 on the default is to drop a message after 20 deliveries.
    return {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}


def declare_dead_letter(channel: Any) -> None:
    """Declare the dead letter exchange, its queue, and what binds them."""
    channel.exchange_declare(DEAD_LETTER_EXCHANGE, "direct", durable=True, auto_delete=False)
    channel.queue_declare(
        DEAD_LETTER, durable=True, auto_delete=False, arguments=dead_letter_queue_arguments()
    )
    channel.queue_bind(DEAD_LETTER, DEAD_LETTER_EXCHANGE, routing_key=DEAD_LETTER)


def declare_task_queue(channel: Any, name: str) -> None:
    """Declare a queue of tasks, as Celery does for its consumers."""
    channel.queue_declare(name, durable=True, auto_delete=False, arguments=task_queue_arguments())
