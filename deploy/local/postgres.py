"""An embedded PostgreSQL server."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from deploy.local.account import Account
from deploy.local.launcher import Command
from deploy.local.ports import HOST

#: Who owns the server; the platform itself logs in as an ordinary role.
SUPERUSER = "postgres"

_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "shared_preload_libraries": "pg_stat_statements",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%p ",
}
#: For data that nobody will miss: a power failure may lose it all. What was committed still
#: survives `kill -9`, which it would not without ``synchronous_commit``.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server on a loopback port, with a password for each role.

    ``options`` are server settings that go before those made here. ``durable=False``
    turns off everything that survives a power failure.
    """

    data: Path
    port: int
    password: str
    programs: Path
    account: Account | None
    options: Mapping[str, str] = field(default_factory=dict)
    durable: bool = True
    name: str = "postgres"

    def prepare(self) -> None:
        """Make the data directory when there is none yet.

        Raises ``RuntimeError`` when the data is of another major version, and
        ``subprocess.CalledProcessError`` when ``initdb`` fails.
        """
        if not self._cluster.exists():
            self._initialise()
        wanted = self._major()
        found = (self._cluster / "PG_VERSION").read_text().strip()
        if found != wanted:
            raise RuntimeError(
                f"{self._cluster} holds data of PostgreSQL {found}, but {wanted} is installed; "
                "move the data away to start anew"
            )
        self._forget_a_dead_postmaster()

    def command(self, stage: int = 0) -> Command:
        options = {**_OPTIONS, **({} if self.durable else _NOT_DURABLE), **self.options}
        options["port"] = str(self.port)
        argv = [str(self.programs / "postgres"), "-D", str(self._cluster)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return Command(
            name=self.name,
            argv=argv,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            cwd=Path("/"),
            account=self.account,
            stop_signal=signal.SIGINT,  # ends sessions instead of waiting for them
            grace_s=20,
            stage=stage,
        )

    def is_ready(self) -> bool:
        try:
            with self.connect(connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def connect(
        self, database: str = "postgres", *, connect_timeout: int = 10
    ) -> psycopg.Connection[tuple[object, ...]]:
        """A session of the superuser, autocommitting."""
        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=connect_timeout)

    def url(self, database: str = "postgres", role: str = SUPERUSER, password: str = "") -> str:
        """The address of a database for a role; the superuser's password is known."""
        word = quote(password or self.password, safe="")
        return f"postgresql://{role}:{word}@{HOST}:{self.port}/{database}"

    def provide(self, database: str, role: str, password: str) -> str:
        """See that the role exists and owns a database of its own; return its URL."""
        self.provide_role(role, password)
        with self.connect() as session:
            found = "SELECT 1 FROM pg_database WHERE datname = %s"
            if not session.execute(found, [database]).fetchone():
                session.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(
                        sql.Identifier(database), sql.Identifier(role)
                    )
                )
        with self.connect(database) as session:
            session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return self.url(database, role, password)

    def provide_role(self, role: str, password: str) -> None:
        """See that an ordinary role with this password exists."""
        with self.connect() as session:
            known = session.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone()
            session.execute(
                sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(
                    sql.SQL("ALTER" if known else "CREATE"),
                    sql.Identifier(role),
                    sql.Literal(password),
                )
            )

    @property
    def _cluster(self) -> Path:
        return self.data / "cluster"

    def _initialise(self) -> None:
        # Made beside and renamed, so that an interrupted start leaves nothing half made.
        draft = self.data / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        with tempfile.NamedTemporaryFile("w", dir=self.data, prefix="pw") as secret:
            secret.write(self.password)
            secret.flush()
            if self.account:
                os.fchown(secret.fileno(), self.account.uid, self.account.gid)
            self._run(
                "initdb",
                f"--pgdata={draft}",
                f"--username={SUPERUSER}",
                f"--pwfile={secret.name}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                # The server's own rules of order, so that the system's need not exist.
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                *([] if self.durable else ["--no-sync"]),
            )
        draft.rename(self._cluster)

    def _major(self) -> str:
        printed = self._run("postgres", "--version")  # "postgres (PostgreSQL) 18.6"
        return printed.split()[2].partition(".")[0]

    def _run(self, program: str, *arguments: str) -> str:
        options = self.account.subprocess_options if self.account else {}
        done = subprocess.run(  # type: ignore[call-overload]
            [str(self.programs / program), *arguments],
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")
        return str(done.stdout)

    def _forget_a_dead_postmaster(self) -> None:
        # After kill -9 the number in the file may be another process's by now, and
        # PostgreSQL would refuse to start because of it.
        file = self._cluster / "postmaster.pid"
        if not file.exists():
            return
        try:
            process = psutil.Process(int(file.read_text().split("\n", 1)[0]))
            if process.cwd() == str(self._cluster.resolve()):
                return
        except (psutil.Error, ValueError):
            pass
        file.unlink()
