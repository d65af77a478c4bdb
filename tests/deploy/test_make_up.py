"""The one command, on a copy of this tree with nothing installed."""

import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.local import register
from deploy.local.launcher import TREE
from tests.lab.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

#: What a user's shell has, rather than what this run of tests has set.
_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name in {"PATH", "HOME", "LANG", "LC_ALL", "PYENV_ROOT", "SSL_CERT_FILE", "TMPDIR"}
    or name.startswith("PIP_")
}


class Tree:
    """A copy of the files of this tree, in a directory that only its owner can enter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path.with_suffix(".log")
        self._make: subprocess.Popen[bytes] | None = None
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=TREE,
            capture_output=True,
            check=True,
        )
        for name in listed.stdout.decode().rstrip("\0").split("\0"):
            if (TREE / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TREE / name, path / name)

    def up(self, *, within_s: float) -> float:
        """``make up``; return the seconds until it said it was ready."""
        began = time.monotonic()
        with self.log.open("wb") as log:
            self._make = subprocess.Popen(
                ["make", "up"],
                cwd=self.path,
                env=_ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        make = self._make
        wait_until(
            lambda: self._says_ready() or make.poll() is not None,
            timeout=within_s,
            message="make up is not ready",
        )
        assert make.poll() is None, self.log.read_text()[-4000:]
        return time.monotonic() - began

    def interrupt(self) -> int:
        """What Ctrl-C does; return make's exit code."""
        assert self._make is not None
        os.killpg(self._make.pid, signal.SIGINT)
        return self._make.wait(timeout=60)

    def kill_supervisor(self) -> None:
        """``kill -9`` it; make ends by itself then."""
        assert self._make is not None
        state = (self.path / ".local" / "up.json").read_text()
        os.kill(int(state.partition('"pid": ')[2].partition(",")[0]), signal.SIGKILL)
        self._make.wait(timeout=60)

    def wait_ended(self) -> None:
        if self._make:
            self._make.wait(timeout=60)

    def ensure_up(self) -> None:
        if self._make is None or self._make.poll() is not None:
            self.up(within_s=180)

    def make(self, target: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", target],
            cwd=self.path,
            env=_ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def addresses(self) -> dict[str, str]:
        """What ``.local/run.env`` says, as a shell reads it."""
        lines = (self.path / ".local" / "run.env").read_text().splitlines()
        return {name: shlex.split(value)[0] for name, _, value in (x.partition("=") for x in lines)}

    @property
    def processes(self) -> list[register.Entry]:
        return register.read(self.path / ".local" / "processes.json")

    def buy(self, key: str) -> httpx.Response:
        given = self.addresses
        return httpx.post(
            f"{given['API_URL']}/api/v1/purchases",
            headers={"Authorization": f"Bearer {given['USER_TOKEN']}", "Idempotency-Key": key},
            json={"sku": "sku-1", "quantity": 1},
            timeout=10,
        )

    def state(self, operation: str) -> str:
        given = self.addresses
        answer = httpx.get(
            f"{given['API_URL']}/api/v1/operations/{operation}",
            headers={"Authorization": f"Bearer {given['USER_TOKEN']}"},
            timeout=10,
        )
        return str(answer.json()["state"])

    def _says_ready(self) -> bool:
        return b"| ready after" in self.log.read_bytes()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    path = tmp_path_factory.mktemp("trees") / "with a blank"
    path.mkdir(mode=0o700)
    tree = Tree(path)
    yield tree
    cleaned = tree.make("clean")
    tree.wait_ended()
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (path / ".local").exists()
    assert not (path / ".venv").exists()


def test_from_nothing_to_the_first_purchase_in_two_minutes(tree: Tree) -> None:
    """Set-up: `make up` on a fresh clone, then ten times the same purchase, then one effect."""
    began = time.monotonic()
    tree.up(within_s=300)
    key = str(uuid.uuid4())
    answers = [tree.buy(key) for _ in range(10)]
    took = time.monotonic() - began

    assert answers[0].status_code == 202, answers[0].text
    (operation,) = {answer.json()["id"] for answer in answers}
    wait_until(lambda: tree.state(operation) == "done", timeout=30)
    ledger = httpx.get(f"{tree.addresses['SANDBOX_URL']}/ledger").json()
    charges = [charge for charge in ledger["charges"] if charge["key"].startswith(operation)]
    assert [charge["status"] for charge in charges] == ["succeeded"]
    assert took < 120


def test_run_env_is_private_and_complete(tree: Tree) -> None:
    tree.ensure_up()

    assert (tree.path / ".local" / "run.env").stat().st_mode & 0o777 == 0o600
    assert set(tree.addresses) == {
        *("API_URL", "USER_TOKEN", "USER_TOKEN_2", "OTHER_TOKEN", "ADMIN_USER", "ADMIN_PASSWORD"),
        *("SANDBOX_URL", "FLOWER_URL", "DATABASE_URL", "BROKER_URL", "CACHE_URL", "LOCKS_URL"),
        "CORS_ORIGIN",
    }
    assert httpx.get(tree.addresses["FLOWER_URL"]).status_code == 200


def test_a_second_up_tells_where_the_first_is(tree: Tree) -> None:
    """Set-up: a second `make up` in the same tree says so and does no harm."""
    tree.ensure_up()
    before = tree.processes

    second = tree.make("up")

    assert second.returncode == 0
    assert "already runs in this tree" in second.stdout
    assert tree.addresses["API_URL"] in second.stdout
    assert tree.processes == before
    assert all(map(register.is_alive, before))


def test_it_recovers_after_its_supervisor_was_killed(tree: Tree) -> None:
    """Set-up: one after a `kill -9` of the first recovers, and nothing that was accepted is
    lost."""
    tree.ensure_up()
    operation = tree.buy(str(uuid.uuid4())).json()["id"]
    before = tree.processes
    token = tree.addresses["USER_TOKEN"]

    tree.kill_supervisor()
    tree.up(within_s=60)

    assert not any(map(register.is_alive, before))
    assert tree.addresses["USER_TOKEN"] == token
    wait_until(lambda: tree.state(operation) == "done", timeout=60)


def test_ctrl_c_ends_everything_and_the_next_start_is_quick(tree: Tree) -> None:
    """Set-up: ends cleanly on Ctrl-C; later starts in under 15 s."""
    tree.ensure_up()
    processes = tree.processes

    tree.interrupt()

    assert "up           | ended" in tree.log.read_text()
    assert [entry.name for entry in processes if register.group(entry)] == []
    assert not (tree.path / ".local" / "run.env").exists()
    # A machine that is busy with something else shows in one start, not in each of three.
    for _ in range(3):
        took = tree.up(within_s=60)
        tree.interrupt()
        if took < 15:
            return
    assert took < 15
