"""An embedded Valkey server."""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.local.account import Account
from deploy.local.home import write_private
from deploy.local.launcher import Command
from deploy.local.ports import HOST

#: Nothing is ever evicted, and at most a second of writes is lost: for messages and leases.
LASTING = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "save": '""',
}
#: What was not read for long makes room, and nothing survives the server: for a cache.
PASSING = {
    "appendonly": "no",
    "maxmemory": "64mb",
    "maxmemory-policy": "allkeys-lru",
    "save": '""',
}


@dataclass(frozen=True)
class Valkey:
    """A Valkey server on a loopback port, with a password.

    ``options`` are server settings, on top of ``LASTING`` or ``PASSING``.
    """

    name: str
    data: Path
    port: int
    password: str
    program: Path
    account: Account | None
    options: Mapping[str, str] = field(default_factory=lambda: LASTING)

    def prepare(self) -> None:
        """Write the configuration. A file, since arguments are everybody's to read."""
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": json.dumps(self.password, ensure_ascii=False),
            "dir": json.dumps(str(self.data), ensure_ascii=False),
            "daemonize": "no",
            "loglevel": "warning",
            **self.options,
        }
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        write_private(self._file, "".join(lines), self.account)

    def command(self, stage: int = 0) -> Command:
        return Command(
            name=self.name,
            argv=[str(self.program), str(self._file)],
            env={"PATH": os.defpath, "LC_ALL": "C"},
            cwd=Path("/"),
            account=self.account,
            stop_signal=signal.SIGTERM,
            grace_s=10,
            stage=stage,
        )

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self, database: int = 0, *, timeout_s: float = 2.0) -> redis.Redis:
        """A client that fails at once or after the time-out instead of trying again."""
        return redis.Redis.from_url(
            self.url(database),
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )

    def url(self, database: int = 0) -> str:
        return f"redis://:{quote(self.password, safe='')}@{HOST}:{self.port}/{database}"

    @property
    def _file(self) -> Path:
        return self.data / "valkey.conf"
