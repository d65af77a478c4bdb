"""A pgbouncer before the lab's PostgreSQL, from the system's program, pooling by transaction."""

import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
import pytest

from deploy.local.account import Account
from deploy.local.embedded import own
from deploy.local.home import write_private
from deploy.local.launcher import Command, Launcher
from deploy.local.ports import HOST
from tests.lab.services import Lab, Server

_PROGRAM = Path("/usr/sbin/pgbouncer")

# The startup parameter "options" is dropped: what it says would be forgotten by the next
# session anyway.
_CONFIGURATION = """\
[databases]
* = host={server_host} port={server_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {data}/users
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 500
query_wait_timeout = 30
ignore_startup_parameters = options,extra_float_digits
pidfile =
"""


@dataclass(frozen=True)
class PgBouncer:
    """The program on a port of its own; ``sessions`` is the size of each pool."""

    data: Path
    port: int
    upstream: str
    sessions: int
    account: Account | None

    name = "pgbouncer"

    def prepare(self) -> None:
        parts = urlsplit(self.upstream)
        text = _CONFIGURATION.format(
            server_host=parts.hostname,
            server_port=parts.port,
            host=HOST,
            port=self.port,
            data=self.data,
            sessions=self.sessions,
        )
        user = f'"{unquote(parts.username or "")}" "{unquote(parts.password or "")}"\n'
        write_private(self.data / "pgbouncer.ini", text, self.account)
        write_private(self.data / "users", user, self.account)

    def command(self, stage: int = 0) -> Command:
        return Command(
            name=self.name,
            argv=[str(_PROGRAM), str(self.data / "pgbouncer.ini")],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            cwd=Path("/"),
            account=self.account,
            stop_signal=signal.SIGTERM,  # at once; SIGINT would wait for clients to leave
            grace_s=5,
            stage=stage,
        )

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def url(self) -> str:
        parts = urlsplit(self.upstream)
        login = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{login}@{HOST}:{self.port}"))


class PoolerServer(Server):
    """pgbouncer. ``url`` is that of the database it was made for, through it."""

    def __init__(self, launcher: Launcher, pooler: PgBouncer, log: Path) -> None:
        super().__init__(launcher, pooler, log)
        self.url = pooler.url
        self.port = pooler.port


def pgbouncer(
    lab: Lab, database_url: str, account: Account | None, *, sessions: int
) -> PoolerServer:
    """One that is not started yet. Skips the test where the program is not installed."""
    if not _PROGRAM.exists():
        pytest.skip("pgbouncer is not installed")
    port = lab.port()
    pooler = PgBouncer(
        data=own(lab.directory / f"pgbouncer-{port}", account),
        port=port,
        upstream=database_url,
        sessions=sessions,
        account=account,
    )
    return PoolerServer(lab.launcher, pooler, lab.directory / "pgbouncer.log")
