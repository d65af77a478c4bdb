"""A RabbitMQ node of the tests' own, from the system's programs, to be frozen or killed alone.

``TEST_RABBITMQ_URL`` (``amqp://user:password@host:port/vhost``) replaces it by a server
that tests do not stop.
"""

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import amqp
import pytest

from deploy.local.account import Account
from deploy.local.embedded import own
from deploy.local.home import write_private
from deploy.local.launcher import Command, Launcher
from deploy.local.ports import HOST
from tests.lab.services import Lab, Server
from tests.lab.waiting import wait_until

#: Where the scripts are that do not insist on a certain user.
_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
_EPMD = Path("/usr/bin/epmd")
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

_CONFIGURATION = """\
listeners.tcp.local = {host}:{port}
default_user = tests
default_pass = {password}
loopback_users = none
log.file = false
log.console = true
log.console.level = warning
vm_memory_high_watermark.relative = 0.6
disk_free_limit.absolute = 50MB
raft.wal_max_size_bytes = 33554432
quorum_queue.compute_checksums = true
consumer_timeout = 60000
"""


@dataclass(frozen=True)
class Node:
    """One node and the name server it needs, on ports of their own."""

    data: Path
    port: int
    dist_port: int
    epmd_port: int
    password: str
    account: Account | None

    name = "rabbitmq"

    @property
    def url(self) -> str:
        return f"amqp://tests:{self.password}@{HOST}:{self.port}//"

    def prepare(self) -> None:
        text = _CONFIGURATION.format(host=HOST, port=self.port, password=self.password)
        write_private(self.data / "rabbitmq.conf", text, self.account)
        write_private(self.data / "rabbitmq-env.conf", "", self.account)
        write_private(self.data / "enabled_plugins", "[].\n", self.account)
        cookie = self.data / ".erlang.cookie"
        if not cookie.exists():
            write_private(cookie, secrets.token_hex(20), self.account)
        cookie.chmod(0o400)

    def command(self, stage: int = 0) -> Command:
        return Command(
            name=self.name,
            argv=[str(_SCRIPTS / "rabbitmq-server")],
            env=self.environment(),
            cwd=Path("/"),
            account=self.account,
            stop_signal=signal.SIGTERM,
            grace_s=15,
            stage=stage,
        )

    def name_server(self, stage: int = 0) -> Command:
        return Command(
            name="epmd",
            argv=[str(_EPMD), "-port", str(self.epmd_port), "-address", HOST],
            env={"PATH": _SYSTEM_PATH},
            cwd=Path("/"),
            account=self.account,
            stop_signal=signal.SIGKILL,
            stage=stage,
        )

    def environment(self) -> dict[str, str]:
        return {
            "PATH": _SYSTEM_PATH,
            "HOME": str(self.data),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.data / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.data / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.data / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.data / "log"),
            "RABBITMQ_PID_FILE": str(self.data / "pid"),
            # One scheduler that does not spin: the tests share the machine.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 2:2 +sbwt none +sbwtdcpu none -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }

    def is_ready(self) -> bool:
        try:
            connection = connect(self.url, timeout_s=2)
        except (OSError, amqp.AMQPError):
            return False
        connection.close()
        return True


class RabbitServer(Server):
    """RabbitMQ, as a broker under test."""

    def __init__(self, launcher: Launcher, node: Node | str, log: Path) -> None:
        super().__init__(launcher, None if isinstance(node, str) else node, log)
        self._node = node
        self._launcher_of_epmd = launcher
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self._node if isinstance(self._node, str) else self._node.url

    def start(self) -> None:
        if isinstance(self._node, Node) and (self._epmd is None or self._epmd.poll() is not None):
            port = self._node.epmd_port
            with self.log.open("ab") as output:
                self._epmd, _ = self._launcher_of_epmd.popen(self._node.name_server(), output)
            # Or the node starts one of its own, which nobody would end.
            wait_until(lambda: _listens(port), message="epmd does not listen")
        super().start()

    def close(self) -> None:
        """End it and what belongs to it."""
        self.recover()
        self.shut_down()
        if self._epmd:
            self._epmd.kill()
            self._epmd.wait()

    def connect(self, *, timeout_s: float = 5) -> amqp.Connection:
        """A new connection, for the test itself."""
        return connect(self.url, timeout_s=timeout_s)

    def flush(self, queues: Iterable[str]) -> None:
        """Empty these queues."""
        with self.connect() as connection:
            channel = connection.channel()
            for queue in queues:
                channel.queue_purge(queue)

    def wipe(self) -> None:
        """Have it forget everything: queues, exchanges, messages; connections are cut."""
        self.ctl("delete_vhost", "/")
        self.ctl("add_vhost", "/")
        self.ctl("set_permissions", "tests", ".*", ".*", ".*")

    def settle(self) -> None:
        """Have new queues written down.

        A node keeps the names of new quorum queues in memory for some seconds; killed
        before they are on disk, it comes back with queues that answer nobody.
        """
        if isinstance(self._node, Node):
            self.ctl("eval", "[dets:sync(Table) || Table <- dets:all()].")

    def queues(self) -> list[str]:
        """The names of all queues."""
        return [
            line
            for line in self.ctl("--no-table-headers", "list_queues", "name").splitlines()
            if line.strip()
        ]

    def ctl(self, *arguments: str) -> str:
        """``rabbitmqctl``; returns what it printed."""
        if isinstance(self._node, str):
            pytest.skip("a server given by its URL is not ours to control")
        done = subprocess.run(
            [str(_SCRIPTS / "rabbitmqctl"), "--quiet", *arguments],
            env=self._node.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            user=self._node.account.uid if self._node.account else None,
            group=self._node.account.gid if self._node.account else None,
            cwd="/",
        )
        return done.stdout


def connect(url: str, *, timeout_s: float = 5) -> amqp.Connection:
    """A plain AMQP connection to the server behind an URL."""
    from kombu.utils.url import parse_url

    parts = parse_url(url)
    connection = amqp.Connection(
        host=f"{parts['hostname']}:{parts['port'] or 5672}",
        userid=parts["userid"] or "guest",
        password=parts["password"] or "guest",
        virtual_host=parts["virtual_host"] or "/",
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        write_timeout=timeout_s,
    )
    connection.connect()
    return connection


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def rabbitmq(lab: Lab, account: Account | None) -> RabbitServer:
    """A node that is not started yet.

    Skips the test where RabbitMQ is not installed.
    """
    given = os.environ.get("TEST_RABBITMQ_URL")
    if not given and not (_EPMD.exists() and (_SCRIPTS / "rabbitmq-server").exists()):
        pytest.skip("RabbitMQ is not installed")
    node = given or Node(
        data=own(lab.directory / "rabbitmq", account),
        port=lab.port(),
        dist_port=lab.port(),
        epmd_port=lab.port(),
        password=secrets.token_hex(16),
        account=account,
    )
    return RabbitServer(lab.launcher, node, lab.directory / "rabbitmq.log")
