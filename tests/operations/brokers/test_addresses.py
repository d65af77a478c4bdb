"""Redis behind TLS, and behind sentinels."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from django.conf import LazySettings

from deploy.local.account import server_account
from deploy.local.embedded import Embedded, own
from deploy.local.home import Home
from deploy.local.launcher import TREE, Command
from deploy.local.ports import HOST
from operations.models import Operation
from tests.lab.accepting import accept
from tests.lab.processes import Process, Stack
from tests.lab.services import Lab, ValkeyServer
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.req("B12")


@contextmanager
def server(lab: Lab, name: str, *argv: str) -> Iterator[Process]:
    """A program that runs for the length of a test."""
    command = Command(
        name=name,
        argv=argv,
        env={"PATH": "/usr/bin:/bin"},
        cwd=Path("/"),
        account=server_account(),
        stop_signal=signal.SIGTERM,
    )
    process = Process(lab.launcher, command, lab.directory / f"{name}.log")
    process.start()
    try:
        yield process
    finally:
        process.discard()


def works(stack: Stack, url: str, settings: LazySettings, timeout: float = 20) -> None:
    settings.BROKER_URL = url
    id = accept()
    wait_until(lambda: Operation.objects.get(pk=id).state == "done", timeout=timeout)


def test_a_broker_behind_tls_is_verified(
    lab: Lab, database: str, locks: ValkeyServer, cache_server: ValkeyServer, settings: LazySettings
) -> None:
    """B12: ``rediss://`` with the authority's certificate; without it, no connection."""
    program = shutil.which("redis-server")
    if not program or not shutil.which("openssl"):
        pytest.skip("redis-server or openssl is not installed")
    home = own(lab.directory / "tls", server_account())
    certificate(home)
    port = lab.port()
    arguments = [
        *("--port", "0", "--tls-port", str(port), "--bind", HOST, "--save", ""),
        *("--tls-cert-file", str(home / "cert.pem"), "--tls-key-file", str(home / "key.pem")),
        *("--tls-ca-cert-file", str(home / "cert.pem"), "--tls-auth-clients", "no"),
    ]
    with server(lab, "redis-tls", program, *arguments):
        trusted = f"rediss://{HOST}:{port}/0?ssl_ca_certs={quote(str(home / 'cert.pem'))}"
        client = redis.Redis.from_url(trusted)
        wait_until(lambda: answers(client))
        client.close()
        with Stack(lab, database, broker_url=trusted, name="tls") as stack:
            stack.start(apis=0, sandbox=False)
            works(stack, trusted, settings)
            stranger = stack.add_worker(env={"BROKER_URL": f"rediss://{HOST}:{port}/0"}, wait=False)
            wait_until(lambda: "certificate verify failed" in stranger.output(), timeout=15)


def certificate(home: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}"),
            *("-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    # The server runs as another user; the key is of no worth after the test.
    home.chmod(0o755)
    for file in home.iterdir():
        file.chmod(0o644)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.mark.full
def test_a_failover_by_sentinels_is_followed(
    lab: Lab, database: str, locks: ValkeyServer, cache_server: ValkeyServer, settings: LazySettings
) -> None:
    """B12 I1: the replica that takes over may lack the last messages; they are sent again."""
    embedded = Embedded(Home(TREE / ".local"))
    program = str(embedded.valkey_program())
    ports = [lab.port() for _ in range(3)]
    home = own(lab.directory / "sentinel", server_account())
    home.chmod(0o777)
    config = home / "sentinel.conf"
    config.write_text(
        f"port {ports[2]}\nbind {HOST}\ndir {home}\n"
        f"sentinel monitor mymaster {HOST} {ports[0]} 1\n"
        "sentinel down-after-milliseconds mymaster 1000\n"
        "sentinel failover-timeout mymaster 5000\n"
    )
    config.chmod(0o666)
    plain = ("--bind", HOST, "--save", "", "--dir", str(home), "--protected-mode", "no")
    with (
        server(lab, "master", program, "--port", str(ports[0]), *plain) as master,
        server(
            lab,
            "replica",
            program,
            *("--port", str(ports[1]), "--replicaof", f"{HOST} {ports[0]}"),
            *plain,
        ),
        server(lab, "sentinel", program, str(config), "--sentinel"),
    ):
        url = f"sentinel://{HOST}:{ports[2]}/0"
        observer = redis.Redis(host=HOST, port=ports[2])
        wait_until(lambda: answers(observer) and observer.sentinel_slaves("mymaster"), timeout=15)
        observer.close()
        with Stack(lab, database, broker_url=url, name="sentinel") as stack:
            stack.start(apis=0, sandbox=False)
            works(stack, url, settings)
            pid = stack.workers[0].pid
            stack.dispatchers[0].stop()
            ids = [accept(publish=False) for _ in range(20)]
            master.kill()
            stack.dispatchers[0].cont()
            wait_until(
                lambda: Operation.objects.filter(id__in=ids, state="done").count() == 20,
                timeout=40,
            )
            works(stack, url, settings)
            assert stack.workers[0].pid == pid
            assert stack.workers[0].is_running
