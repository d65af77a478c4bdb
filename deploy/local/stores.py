"""PostgreSQL and Valkey for ``make up``: given by URLs or embedded."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from deploy.local.embedded import Embedded
from deploy.local.home import Home
from deploy.local.ports import Ports
from deploy.local.postgres import Postgres
from deploy.local.supervisor import Program
from deploy.local.valkey import LASTING, PASSING, Valkey

_DATABASE = _ROLE = "sekali"


@dataclass
class Stores:
    """The stores of a run.

    ``urls``: the environment variables that name them. ``programs``: the embedded servers to
    run. ``provide``: to be called when these are ready; makes role and database.
    """

    urls: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    provide: Callable[[], object] = lambda: None


def choose(home: Home, ports: Ports) -> Stores:
    """Take the stores that the environment names and embed the rest.

    Makes the data directories of embedded servers, which takes a second the first time.
    """
    names = ("DATABASE_URL", "BROKER_URL", "LOCKS_URL", "CACHE_URL")
    stores = Stores({name: os.environ[name] for name in names if os.environ.get(name)})
    missing = [name for name in names if name not in stores.urls]
    if missing:
        _embed(home, ports, stores, missing)
    return stores


def _embed(home: Home, ports: Ports, stores: Stores, missing: list[str]) -> None:
    embedded = Embedded(home)

    def valkey(name: str, port: int, options: dict[str, str]) -> Valkey:
        server = Valkey(
            name=name,
            data=embedded.data(name),
            port=ports.take(port),
            password=home.secret(name),
            program=embedded.valkey_program(),
            account=embedded.account,
            options=options,
        )
        server.prepare()
        stores.programs.append(Program(server.command(), is_ready=server.is_ready))
        return server

    if "DATABASE_URL" in missing:
        postgres = Postgres(
            data=embedded.data("postgres"),
            port=ports.take(15432),
            password=home.secret("postgres"),
            programs=embedded.postgres_programs(),
            account=embedded.account,
        )
        postgres.prepare()
        stores.programs.append(Program(postgres.command(), is_ready=postgres.is_ready))
        password = home.secret("database-role")
        stores.urls["DATABASE_URL"] = postgres.url(_DATABASE, _ROLE, password)
        stores.provide = lambda: postgres.provide(_DATABASE, _ROLE, password)
    if "BROKER_URL" in missing or "LOCKS_URL" in missing:
        # Messages and leases must not be evicted; what may be is on a server of its own.
        server = valkey("valkey", 16379, LASTING)
        stores.urls.setdefault("BROKER_URL", server.url(0))
        stores.urls.setdefault("LOCKS_URL", server.url(1))
    if "CACHE_URL" in missing:
        stores.urls["CACHE_URL"] = valkey("cache", 16380, PASSING).url()
