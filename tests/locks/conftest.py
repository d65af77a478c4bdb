from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pytest_django import DjangoDbBlocker, Settings

from deploy.local.embedded import Embedded, own
from deploy.local.home import Home
from deploy.local.launcher import TREE
from deploy.local.valkey import Valkey
from locks import counts
from locks.models import LeaseRow
from tests.lab.proxy import Proxy
from tests.lab.services import Lab, ValkeyServer
from tests.locks.holder import Holder

SpareServers = Callable[..., ValkeyServer]


@pytest.fixture(autouse=True)
def _no_counts() -> None:
    counts.take()


@pytest.fixture
def proxy(locks: ValkeyServer, settings: Settings) -> Iterator[Proxy]:
    """Leases of this process go through it."""
    with Proxy(locks.url) as proxy:
        settings.LOCKS_URL = proxy.url
        yield proxy


@pytest.fixture
def holder(locks: ValkeyServer) -> Iterator[Callable[[], Holder]]:
    """Starts processes that take leases on command."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Holder(locks.url))


@pytest.fixture
def spare(lab: Lab) -> Iterator[SpareServers]:
    """Starts servers of the test's own: ``spare("name", maxmemory="2mb")``."""
    started: list[ValkeyServer] = []
    embedded = Embedded(Home(TREE / ".local"))

    def start(name: str, **options: str) -> ValkeyServer:
        directory = own(lab.directory / f"spare-{name}-{lab.port()}", embedded.account)
        valkey = Valkey(
            name=name,
            data=directory,
            port=lab.port(),
            password="spare",
            program=embedded.valkey_program(),
            account=embedded.account,
            options={
                "save": '""',
                "masterauth": "spare",
                "repl-diskless-sync-delay": "0",
                **{key.replace("_", "-"): value for key, value in options.items()},
            },
        )
        server = ValkeyServer(lab.launcher, valkey, lab.directory / f"spare-{name}.log")
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.recover()
        server.shut_down()


@pytest.fixture
def fences(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database is there for durable fences, and for leases in its rows: none yet."""
    with django_db_blocker.unblock():
        LeaseRow.objects.all().delete()
        yield


@pytest.fixture(params=["valkey", "postgres"])
def store(
    request: pytest.FixtureRequest, fences: None, locks: ValkeyServer, settings: Settings
) -> str:
    """Every kind of store in turn; leases of this process go there."""
    name: str = request.param
    settings.LOCKS_BACKEND = name
    return name
