"""The tests' own tools do what tests rely on."""

import subprocess
import sys
import textwrap
from pathlib import Path

import psycopg
import pytest
import redis

from deploy.local.launcher import TREE
from tests.deploy.standins import has_ended
from tests.lab.services import PostgresServer, ValkeyServer
from tests.lab.waiting import wait_until


def test_a_frozen_server_keeps_connections_and_answers_when_it_goes_on(
    broker: ValkeyServer,
) -> None:
    with broker.client(timeout_s=0.2) as client:
        client.set("kept", 1)

        broker.stop()
        with pytest.raises(redis.TimeoutError):
            client.get("kept")
        broker.cont()

        assert client.get("kept") == b"1"


def test_a_killed_broker_comes_back_on_its_port_with_what_it_had(broker: ValkeyServer) -> None:
    url, pid = broker.url, broker.pid
    with broker.client() as client:
        client.set("kept", 1)
        wait_until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)

    broker.kill()
    assert has_ended(pid)
    broker.start()

    assert broker.url == url
    with broker.client() as client:
        assert client.get("kept") == b"1"
        broker.flush()
        assert client.dbsize() == 0


def test_a_frozen_database_answers_nobody(postgres: PostgresServer) -> None:
    postgres.stop()

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.url, connect_timeout=2)

    postgres.recover()
    with postgres.connect() as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_database_keeps_what_was_committed(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.create("kept")) as session:
        session.execute("CREATE TABLE kept AS SELECT 42 AS answer")

    postgres.kill()
    postgres.start()

    with psycopg.connect(postgres.url_of("kept")) as session:
        assert session.execute("SELECT answer FROM kept").fetchone() == (42,)
    postgres.drop("kept")


def test_servers_of_a_run_that_was_killed_end_too() -> None:
    script = """
        import signal
        from tests.lab.services import Lab
        lab = Lab()
        lab.broker.start()
        print(lab.broker.pid, flush=True)
        signal.pause()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert not has_ended(pid)
        run.kill()

    wait_until(lambda: has_ended(pid))


def test_waiting_in_vain_tells_what_for_and_what_was_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"no order came \(waited 0.05 s, last answer: \[\]\)"):
        wait_until(list, timeout=0.05, message="no order came")


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_ci_accepts_only_known_skips(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "test_skipping.py").write_text(
        "import pytest\ndef test_it():\n    pytest.skip('no such tool here')\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "no:django"]
    done = subprocess.run(
        [*command, "-p", "tests.lab.skips", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=TREE,
        env={"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stdout
    assert ("test_skipping.py::test_it: no such tool here" in done.stdout) == (ci == "true")
