"""Real servers for the tests: PostgreSQL and three Valkeys, each to be frozen or killed alone.

They are embedded, with ports and passwords known before they start, so that Django's
settings can be read at once and a run that needs no server starts none.
``TEST_DATABASE_URL``, ``TEST_BROKER_URL``, ``TEST_CACHE_URL`` and ``TEST_LOCKS_URL`` replace
them; a test that would stop such a server is then skipped.
"""

import fcntl
import os
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TextIO
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import pytest
import redis
from psycopg import sql

from deploy.local import register
from deploy.local.account import Account, can_use
from deploy.local.embedded import Embedded, own
from deploy.local.home import Home
from deploy.local.launcher import TREE, Command, Launcher
from deploy.local.ports import Ports
from deploy.local.postgres import Postgres
from deploy.local.register import Entry
from deploy.local.valkey import LASTING, PASSING, Valkey
from tests.lab.waiting import wait_until

ROLE = "sekali"
DATABASE = "sekali_tests"
TEMPLATE = "sekali_template"

_PREFIX = "sekali-tests-"
#: A file that a run keeps locked for as long as it lives.
_HELD = "held"


class Embeddable(Protocol):
    """What an embedded server offers, whichever it is."""

    @property
    def name(self) -> str: ...
    def prepare(self) -> None: ...
    def command(self, stage: int = 0) -> Command: ...
    def is_ready(self) -> bool: ...


class Server:
    """One server of the lab. Every method may be called in any state of it."""

    def __init__(self, launcher: Launcher, server: Embeddable | None, log: Path) -> None:
        self._launcher = launcher
        self._server = server
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._entry: Entry | None = None
        self._frozen = False

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start it, on the port and with the data it had; return when it answers."""
        if self._server is None or (self._process and self._process.poll() is None):
            return
        server = self._server
        server.prepare()
        with self.log.open("ab") as output:
            self._process, self._entry = self._launcher.popen(server.command(), output)
        wait_until(
            lambda: server.is_ready() or self._process is None or self._process.poll() is not None,
            timeout=30,
            message=f"{server.name} does not answer, see {self.log}",
        )
        if self._process.poll() is not None:
            raise RuntimeError(f"{server.name} ended at once:\n{self.log.read_text()}")

    def stop(self) -> None:
        """Freeze it: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def cont(self) -> None:
        """Let it go on after ``stop``."""
        self._signal(signal.SIGCONT)
        self._frozen = False

    def kill(self) -> None:
        """``kill -9`` it."""
        process = self._running()
        if self._entry:
            register.kill(register.family(self._entry))
        process.wait()
        self._forget()

    def shut_down(self) -> None:
        """End it in order."""
        if self._process is None or self._entry is None:
            return
        register.end_all([self._entry])
        self._process.wait()
        self._forget()

    def restart(self) -> None:
        """End it in order and start it again."""
        self._running()
        self.shut_down()
        self.start()

    def recover(self) -> None:
        """Let it run again, whatever a test did to it."""
        if self._server is None:
            return
        if self._frozen and self._process and self._process.poll() is None:
            self.cont()
        self._frozen = False
        self.start()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            pytest.skip("a server given by its URL is not ours to stop")
        if self._process is None:
            raise RuntimeError(f"{self._server.name} does not run")
        return self._process

    def _signal(self, number: int) -> None:
        self._running()
        if self._entry:
            for process in register.family(self._entry):
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue

    def _forget(self) -> None:
        if self._entry:
            self._launcher.ended(self._entry)
        self._process = self._entry = None
        self._frozen = False


class PostgresServer(Server):
    """PostgreSQL. ``url`` is the test database's, for the platform's ordinary role."""

    def __init__(self, launcher: Launcher, server: Postgres | str, log: Path) -> None:
        super().__init__(launcher, None if isinstance(server, str) else server, log)
        self._where = server
        self._password = secrets.token_urlsafe(16)

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The address of a database for the platform's role."""
        if isinstance(self._where, str):
            parts = urlsplit(self._where)
            return urlunsplit(parts._replace(path=f"/{database}"))
        return self._where.url(database, ROLE, self._password)

    def connect(self, database: str = "") -> psycopg.Connection[tuple[object, ...]]:
        """An autocommitting session: the superuser's, or, given a URL, that user's."""
        if isinstance(self._where, str):
            address = self.url_of(database) if database else self._where
            return psycopg.connect(address, autocommit=True)
        return self._where.connect(database or "postgres")

    def create(self, database: str, template: str = "") -> str:
        """Make the database anew, from a template if named; return its URL.

        Nobody may be connected to the template meanwhile.
        """
        self._provide_role()
        made = sql.SQL("CREATE DATABASE {} {}").format(
            sql.Identifier(database),
            sql.SQL("TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
            if template
            else sql.SQL(""),
        )
        if not isinstance(self._where, str):
            made += sql.SQL(" OWNER {}").format(sql.Identifier(ROLE))
        self.drop(database)
        with self.connect() as session:
            session.execute(made)
        if not template:
            with self.connect(database) as session:
                session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return self.url_of(database)

    def drop(self, database: str) -> None:
        """Drop the database if it exists, whoever is connected."""
        with self.connect() as session:
            session.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
            )

    def _provide_role(self) -> None:
        if not isinstance(self._where, str):
            self._where.provide_role(ROLE, self._password)


class ValkeyServer(Server):
    """A Valkey. ``url`` is that of its database 0."""

    def __init__(self, launcher: Launcher, server: Valkey | str, log: Path) -> None:
        super().__init__(launcher, None if isinstance(server, str) else server, log)
        self.url = server if isinstance(server, str) else server.url()

    def client(self, *, timeout_s: float = 5.0) -> redis.Redis:
        """A new client, for the test itself."""
        return redis.Redis.from_url(
            self.url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )

    def flush(self) -> None:
        """Wipe the database that the URL names."""
        with self.client() as client:
            client.flushdb()


class Lab:
    """All servers of one test run; none runs before it is asked to ``start``."""

    def __init__(
        self,
        postgres_options: Mapping[str, str] | None = None,
        valkey_options: Mapping[str, str] | None = None,
    ) -> None:
        """``*_options``: settings of the servers that go before the lab's own."""
        embedded = Embedded(Home(TREE / ".local"))
        self.directory = scratch(embedded.account)
        self._held = _hold(self.directory)
        _sweep(self.directory.parent)
        self.launcher = Launcher(self.directory / "processes.json")
        self._ports = Ports()
        # Below the range that the system gives to outgoing connections, so that a killed
        # server finds its port free again; at random, since other runs may go on.
        self._next_port = random.randrange(20_000, 30_000)

        def valkey(name: str, options: Mapping[str, str]) -> ValkeyServer:
            given = os.environ.get(f"TEST_{name.upper()}_URL")
            server = given or Valkey(
                name=name,
                data=own(self.directory / name, embedded.account),
                port=self.port(),
                password=secrets.token_urlsafe(16),
                program=embedded.valkey_program(),
                account=embedded.account,
                options={**options, **(valkey_options or {})},
            )
            return ValkeyServer(self.launcher, server, self._log(name))

        self.postgres = PostgresServer(
            self.launcher,
            os.environ.get("TEST_DATABASE_URL")
            or Postgres(
                data=own(self.directory / "postgres", embedded.account),
                port=self.port(),
                password=secrets.token_urlsafe(16),
                programs=embedded.postgres_programs(),
                account=embedded.account,
                options={"max_connections": "300", **(postgres_options or {})},
                durable=False,
            ),
            self._log("postgres"),
        )
        self.broker = valkey("broker", LASTING)
        self.locks = valkey("locks", LASTING)
        self.cache = valkey("cache", PASSING)
        self.servers: list[Server] = [self.postgres, self.broker, self.locks, self.cache]

    def environment(self) -> dict[str, str]:
        """The variables that point the platform at these servers."""
        return {
            "DATABASE_URL": self.postgres.url,
            "BROKER_URL": self.broker.url,
            "LOCKS_URL": self.locks.url,
            "CACHE_URL": self.cache.url,
        }

    def port(self) -> int:
        """A free port that is handed out once."""
        port = self._ports.take(self._next_port)
        self._next_port = port + 1
        return port

    def close(self) -> None:
        """End everything that was started and remove its data."""
        for server in self.servers:
            server.recover()
            server.shut_down()
        self.launcher.close()
        self._held.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def scratch(account: Account | None) -> Path:
    """A new directory that the servers' user can pass through."""
    for parent in (Path(tempfile.gettempdir()), Path("/var/tmp")):
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        directory.chmod(0o711)
        if can_use(account, own(directory / "probe", account)):
            return directory
        shutil.rmtree(directory)
    raise RuntimeError(f"{account} can use no directory for temporary files")


def _sweep(parent: Path) -> None:
    """Remove what runs that were killed have left beside this one."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _HELD).open("r+") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:  # not ours, still held, or removed by another
            continue


def _hold(directory: Path) -> TextIO:
    held = (directory / _HELD).open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    return held
