"""Fixtures on the lab's real servers. Registered after pytest-django, whose set-up of the
test database they replace."""

from collections.abc import Callable, Generator, Iterator

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from deploy.local.account import server_account
from tests.lab import plugin
from tests.lab.pgbouncer import PoolerServer, pgbouncer
from tests.lab.processes import Stack
from tests.lab.services import DATABASE, TEMPLATE, Lab, PostgresServer, ValkeyServer


@pytest.fixture(autouse=True)
def _content_types_anew() -> None:
    """Django remembers their ids, and each database has its own."""
    ContentType.objects.clear_cache()


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The run's servers; ask for ``postgres``, ``broker``, ``locks`` or ``cache_server`` to
    have one of them started."""
    return plugin.lab()


@pytest.fixture(scope="session")
def migrated_template(lab: Lab, django_db_blocker: DjangoDbBlocker) -> str:
    """The name of a database that the migrations have made; clone it, leave it alone."""
    lab.postgres.start()
    lab.postgres.create(TEMPLATE)
    with django_db_blocker.unblock():
        use_database(TEMPLATE)
        call_command("migrate", verbosity=0, interactive=False)
        use_database(DATABASE)
    return TEMPLATE


@pytest.fixture(scope="session")
def django_db_setup(lab: Lab, migrated_template: str) -> None:
    """The database of ``django_db`` tests: a clone of the template."""
    lab.postgres.create(DATABASE, migrated_template)


@pytest.fixture
def postgres(lab: Lab) -> Iterator[PostgresServer]:
    """PostgreSQL, running; whatever the test does to it is undone."""
    lab.postgres.start()
    yield lab.postgres
    lab.postgres.recover()


@pytest.fixture
def broker(lab: Lab) -> Iterator[ValkeyServer]:
    """The broker's Valkey, running and empty; whatever the test does to it is undone."""
    yield from _valkey(lab.broker)


@pytest.fixture
def locks(lab: Lab) -> Iterator[ValkeyServer]:
    """The leases' Valkey, running and empty; whatever the test does to it is undone."""
    yield from _valkey(lab.locks)


@pytest.fixture
def cache_server(lab: Lab) -> Iterator[ValkeyServer]:
    """The cache's Valkey, running and empty; whatever the test does to it is undone."""
    yield from _valkey(lab.cache)


@pytest.fixture
def database(
    lab: Lab,
    postgres: PostgresServer,
    migrated_template: str,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[str]:
    """The URL of a fresh database, which Django in this process uses for the test as well.

    For tests with processes of their own; what they commit is dropped with the database.
    """
    name = f"{DATABASE}_one"
    url = postgres.create(name, migrated_template)
    with django_db_blocker.unblock():
        use_database(name)
        yield url
        use_database(DATABASE)
    postgres.recover()
    postgres.drop(name)


@pytest.fixture
def pooler(lab: Lab, database: str) -> Iterator[Callable[[int], PoolerServer]]:
    """Starts a pgbouncer before ``database``: ``pooler(2)`` has two sessions for all clients."""
    started: list[PoolerServer] = []

    def start(sessions: int) -> PoolerServer:
        server = pgbouncer(lab, database, server_account(), sessions=sessions)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.recover()
        server.shut_down()


@pytest.fixture
def stack(
    lab: Lab,
    database: str,
    broker: ValkeyServer,
    locks: ValkeyServer,
    cache_server: ValkeyServer,
    request: pytest.FixtureRequest,
) -> Iterator[Stack]:
    """The platform's processes on a fresh database; none is started yet."""
    with Stack(lab, database, name=request.node.name[:60].replace("/", "_")) as stack:
        yield stack


def _valkey(server: ValkeyServer) -> Iterator[ValkeyServer]:
    server.start()
    server.flush()
    yield server
    server.recover()


def use_database(name: str) -> None:
    """Let Django in this process use another database of the lab's server from now on."""
    connection = connections["default"]
    connection.close()
    if pool := getattr(connection, "close_pool", None):
        pool()
    connection.settings_dict["NAME"] = name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its processes printed last."""
    report = yield
    if report.failed and call.when == "call":
        for fixture in getattr(item, "funcargs", {}).values():
            stack = getattr(fixture, "stack", fixture)
            if isinstance(stack, Stack):
                for process in stack.processes:
                    if process.log.exists():
                        report.sections.append((process.name, process.output()[-6000:]))
    return report
