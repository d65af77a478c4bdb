"""The platform on either broker: the same tests for both."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from amqp.exceptions import NotFound
from django.conf import LazySettings

from deploy.local.account import server_account
from operations import registry
from operations.broker import get_broker, rabbitmq_topology
from operations.broker.names import DEAD_LETTER, HOUSEKEEPING
from operations.models import Operation
from tests.lab.accepting import accept
from tests.lab.processes import Stack
from tests.lab.rabbitmq import RabbitServer, rabbitmq
from tests.lab.services import Lab, ValkeyServer
from tests.lab.waiting import wait_until
from tests.operations.brokers.bad_messages import KIND, Bad

TASK_QUEUES = [*registry.queues(), HOUSEKEEPING]


@dataclass
class Platform:
    """A stack on one of the brokers; nothing is started yet."""

    stack: Stack
    server: ValkeyServer | RabbitServer

    @property
    def is_redis(self) -> bool:
        return isinstance(self.server, ValkeyServer)

    def send(self, bad: Bad, queue: str = KIND) -> None:
        """Put a message into a queue as it is."""
        if isinstance(self.server, ValkeyServer):
            with self.server.client() as client:
                client.lpush(queue, bad.as_item)
            return
        with self.server.connect() as connection:
            bad.publish(connection.channel(), queue)

    def ready(self, queue: str) -> int:
        """Messages that wait in a queue."""
        return get_broker().ready(queue)

    def works(self, timeout: float = 15) -> None:
        """Operations are still done, within seconds."""
        id = accept(KIND)
        wait_until(
            lambda: Operation.objects.get(pk=id).state == "done",
            timeout=timeout,
            message="the platform does not work any more",
        )


@pytest.fixture(scope="session")
def rabbit_server(lab: Lab) -> Iterator[RabbitServer]:
    """A RabbitMQ of the tests' own, running."""
    server = rabbitmq(lab, server_account())
    try:
        server.start()
        yield server
    finally:
        server.close()


def empty(server: RabbitServer) -> None:
    """Have it run with all queues, and nothing in them."""
    server.recover()
    queues = [*TASK_QUEUES, DEAD_LETTER]
    try:
        server.flush(queues)
    except NotFound:
        with server.connect() as connection:
            channel = connection.channel()
            rabbitmq_topology.declare_dead_letter(channel)
            for name in TASK_QUEUES:
                rabbitmq_topology.declare_task_queue(channel, name)
        server.settle()
        server.flush(queues)


@pytest.fixture(params=["redis", "rabbitmq"])
def platform(
    request: pytest.FixtureRequest,
    lab: Lab,
    database: str,
    locks: ValkeyServer,
    cache_server: ValkeyServer,
    settings: LazySettings,
) -> Iterator[Platform]:
    """The platform on each broker in turn; this process publishes to it as well."""
    server: ValkeyServer | RabbitServer
    if request.param == "redis":
        server = request.getfixturevalue("broker")
    else:
        rabbit: RabbitServer = request.getfixturevalue("rabbit_server")
        empty(rabbit)
        server = rabbit
    settings.BROKER_URL = server.url
    name = request.node.name[:60].replace("/", "_")
    with Stack(lab, database, broker_url=server.url, name=name) as stack:
        yield Platform(stack, server)
    server.recover()
