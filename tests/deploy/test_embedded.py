import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from deploy.local import register
from deploy.local.account import can_use, server_account
from deploy.local.embedded import Embedded
from deploy.local.home import Home
from deploy.local.launcher import Launcher
from deploy.local.ports import HOST, Ports, is_free
from deploy.local.postgres import Postgres
from deploy.local.valkey import LASTING, PASSING, Valkey
from tests.lab.services import scratch
from tests.lab.waiting import wait_until

FIRST_PORT = 19_200


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the servers' user can pass through, unlike pytest's own under root."""
    directory = scratch(server_account())
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def launcher(directory: Path) -> Iterator[Launcher]:
    with Launcher(directory / "processes.json") as launcher:
        yield launcher


@pytest.fixture
def embedded(directory: Path) -> Embedded:
    return Embedded(Home(directory / "home"))


@pytest.fixture
def postgres(embedded: Embedded) -> Postgres:
    return Postgres(
        data=embedded.data("postgres"),
        port=Ports().take(FIRST_PORT),
        password="of the owner",
        programs=embedded.postgres_programs(),
        account=embedded.account,
        durable=False,
    )


@pytest.fixture
def valkey(embedded: Embedded) -> Valkey:
    return Valkey(
        name="valkey",
        data=embedded.data("valkey"),
        port=Ports().take(FIRST_PORT + 100),
        password="pass word",
        program=embedded.valkey_program(),
        account=embedded.account,
    )


def test_a_taken_port_is_stepped_over() -> None:
    """Set-up: ports that are taken are stepped over."""
    ports = Ports()
    first = ports.take(FIRST_PORT + 200)
    with socket.socket() as other:
        other.bind((HOST, first + 1))
        other.listen()

        assert not is_free(first + 1)
        assert ports.take(first) == first + 2, "the first was handed out, the second is taken"


def test_a_listener_on_all_interfaces_takes_the_port_too() -> None:
    port = Ports().take(FIRST_PORT + 300)
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))  # noqa: S104
        other.listen()

        assert not is_free(port)


def test_postgres_keeps_what_was_committed_when_it_is_killed(
    launcher: Launcher, postgres: Postgres
) -> None:
    postgres.prepare()
    process, entry = launcher.popen(postgres.command())
    wait_until(postgres.is_ready)
    url = postgres.provide("shop", "seller", "s:e/c@r?t")
    with psycopg.connect(url) as session:
        session.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    process.kill()
    process.wait()
    register.kill(register.family(entry))

    postgres.prepare()
    process, entry = launcher.popen(postgres.command())
    wait_until(postgres.is_ready)

    with psycopg.connect(postgres.provide("shop", "seller", "s:e/c@r?t")) as session:
        assert session.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert session.execute("SELECT count(*) FROM pg_stat_statements").fetchone() is not None
        assert session.execute("SHOW is_superuser").fetchone() == ("off",)
    register.end_all([entry])
    assert process.wait() == 0


def test_postgres_wants_a_password_and_runs_without_the_rights_of_root(
    launcher: Launcher, postgres: Postgres
) -> None:
    postgres.prepare()
    process, entry = launcher.popen(postgres.command())
    wait_until(postgres.is_ready)

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url(password="guess"))
    assert psutil.Process(process.pid).uids().real != 0
    register.end_all([entry])
    process.wait()


def test_postgres_starts_after_a_start_that_was_broken_off(
    launcher: Launcher, postgres: Postgres
) -> None:
    """Half a data directory, and the pid file of a killed server whose number is taken now."""
    (postgres.data / "draft").mkdir()
    (postgres.data / "draft" / "PG_VERSION").write_text("18")
    postgres.prepare()
    (postgres.data / "cluster" / "postmaster.pid").write_text(f"{os.getpid()}\n")

    postgres.prepare()
    process, entry = launcher.popen(postgres.command())

    wait_until(postgres.is_ready)
    register.end_all([entry])
    assert process.wait() == 0


def test_postgres_refuses_data_of_another_version_by_name(postgres: Postgres) -> None:
    postgres.prepare()
    (postgres.data / "cluster" / "PG_VERSION").write_text("9\n")

    with pytest.raises(RuntimeError, match="holds data of PostgreSQL 9, but"):
        postgres.prepare()


def test_a_lasting_valkey_keeps_its_data_and_evicts_nothing(
    launcher: Launcher, valkey: Valkey
) -> None:
    valkey.prepare()
    process, _ = launcher.popen(valkey.command())
    wait_until(valkey.is_ready)
    with valkey.client() as client:
        client.set("kept", "42")
        wait_until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    process.kill()
    process.wait()

    process, entry = launcher.popen(valkey.command())
    wait_until(valkey.is_ready)

    with valkey.client() as client:
        assert client.get("kept") == b"42"
    stranger = replace(valkey, password="guess").client()
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    register.end_all([entry])
    process.wait()


def test_a_passing_valkey_makes_room_instead_of_refusing(
    launcher: Launcher, valkey: Valkey
) -> None:
    cache = replace(valkey, options={**PASSING, "maxmemory": "3mb"})
    cache.prepare()
    process, entry = launcher.popen(cache.command())
    wait_until(cache.is_ready)

    with cache.client() as client:
        for number in range(64):
            client.set(f"page-{number}", b"x" * 65_536)
        assert 0 < client.dbsize() < 64
    register.end_all([entry])
    process.wait()
    assert LASTING["maxmemory-policy"] == "noeviction"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
def test_servers_live_elsewhere_when_their_user_cannot_enter_the_tree(directory: Path) -> None:
    """Set-up: works as root, also from a clone under /root."""
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    embedded = Embedded(Home(closed / ".local"))
    data = embedded.data("postgres")
    try:
        assert not data.is_relative_to(closed)
        assert can_use(embedded.account, data, embedded.postgres_programs() / "postgres")
        assert Embedded(Home(closed / ".local")).data("postgres") == data
        (data / "of a former tree").touch()
        shutil.rmtree(closed / ".local")

        assert list(Embedded(Home(closed / ".local")).data("postgres").iterdir()) == []
    finally:
        shutil.rmtree(data.parent)


def test_secrets_are_kept_and_nobody_else_reads_them(tmp_path: Path) -> None:
    home = Home(tmp_path / ".local")

    secret = home.secret("django")

    assert Home(tmp_path / ".local").secret("django") == secret
    assert home.secret("other") != secret
    (file,) = (tmp_path / ".local").glob("*/django")
    assert file.stat().st_mode & 0o777 == 0o600
