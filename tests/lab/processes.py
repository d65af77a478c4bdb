"""Our own processes under test: started, frozen, killed and started again one by one."""

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

from deploy.local import parts, register
from deploy.local.launcher import Command, Launcher
from deploy.local.ports import HOST
from deploy.local.register import Entry
from tests.lab.services import Lab
from tests.lab.waiting import wait_until


class Process:
    """One started program. Its output goes to ``log``, across restarts."""

    def __init__(
        self,
        launcher: Launcher,
        command: Command,
        log: Path,
        is_ready: Callable[["Process"], bool] | None = None,
    ) -> None:
        self.command = command
        self.log = log
        self._launcher = launcher
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None
        self._entry: Entry | None = None
        self._log_start = 0

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        """The main process. Raises ``RuntimeError`` when it was not started."""
        return self._started()[0].pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """As ``Popen`` tells it; None while it runs."""
        return self._process.poll() if self._process else None

    def start(self, *, wait: bool = True) -> Self:
        """Start it anew; with ``wait``, return when it is ready."""
        if self.is_running:
            return self
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process, self._entry = self._launcher.popen(self.command, output)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Return when it is ready for work. Raises ``AssertionError`` when it is not in time."""
        ready = self._is_ready
        if ready is None:
            return
        wait_until(
            lambda: ready(self) or not self.is_running,
            timeout=timeout,
            message=f"{self.name} is not ready, see {self.log}",
        )
        if not self.is_running:
            raise AssertionError(f"{self.name} ended at once:\n{self.output()[-4000:]}")

    def output(self) -> str:
        """What it has printed since its last start."""
        with self.log.open("rb") as stream:
            stream.seek(self._log_start)
            return stream.read().decode(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The processes that it started itself, e.g. a worker's pool."""
        return psutil.Process(self.pid).children()

    def stop(self) -> None:
        """Freeze it and its children; ``cont`` lets them go on."""
        self._signal_family(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal_family(signal.SIGCONT)

    def kill(self) -> None:
        """``kill -9`` the whole group at once, as when a host dies."""
        process, entry = self._started()
        register.kill(register.family(entry))
        process.wait()
        self._forget()

    def kill_main(self) -> None:
        """``kill -9`` the main process only; its children find out by themselves."""
        process, _ = self._started()
        process.kill()
        process.wait()

    def terminate(self, timeout: float | None = None) -> int:
        """Ask it to end, wait (by default its own grace, in seconds), return its exit code.

        Raises ``AssertionError`` when it does not end in time.
        """
        process, entry = self._started()
        process.send_signal(self.command.stop_signal)
        limit = self.command.grace_s if timeout is None else timeout
        wait_until(
            lambda: process.poll() is not None,
            timeout=limit,
            message=f"{self.name} does not end",
        )
        register.kill(register.family(entry))
        self._forget()
        return process.wait()

    def restart(self) -> Self:
        """End it in order and start it again."""
        self.terminate()
        return self.start()

    def discard(self) -> None:
        """See that nothing of it runs, whatever state it is in."""
        if self._process and self._entry:
            register.kill(register.family(self._entry))
            self._process.wait()
            self._forget()

    def _started(self) -> tuple[subprocess.Popen[bytes], Entry]:
        if self._process is None or self._entry is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process, self._entry

    def _signal_family(self, number: int) -> None:
        for process in register.family(self._started()[1]):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def _forget(self) -> None:
        if self._entry:
            self._launcher.ended(self._entry)
        self._entry = None


class Stack:
    """The platform's processes on one database: all of them or the parts a test wants.

    ``env`` is added to each process's environment, and changes to it count for what is
    started afterwards. Stacks share the lab's broker, so workers and dispatchers are never
    kept from one test to the next: they would take the messages of others.
    """

    def __init__(
        self,
        lab: Lab,
        database_url: str = "",
        *,
        env: Mapping[str, str] | None = None,
        broker_url: str = "",
        cache_url: str = "",
        locks_url: str = "",
        name: str = "stack",
    ) -> None:
        """URLs that are left out are the lab's."""
        self.lab = lab
        self.database_url = database_url or lab.postgres.url
        self.broker_url = broker_url or lab.broker.url
        self.cache_url = cache_url or lab.cache.url
        self.locks_url = locks_url or lab.locks.url
        self.directory = lab.directory / name
        self.directory.mkdir(exist_ok=True)
        self.apis: list[Process] = []
        self.workers: list[Process] = []
        self.dispatchers: list[Process] = []
        self.beat: Process | None = None
        self._api_ports: list[int] = []
        sandbox_port = lab.port()
        self.sandbox_url = f"http://{HOST}:{sandbox_port}"
        self.env = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "CACHE_URL": self.cache_url,
            "LOCKS_URL": self.locks_url,
            "SUPPLIER_URL": f"{self.sandbox_url}/supplier",
            "STRIPE_API_BASE": f"{self.sandbox_url}/gateway",
            **(env or {}),
        }
        self.sandbox = self.process(
            parts.sandbox(self.env, sandbox_port, self.directory / "sandbox.sqlite3"),
            lambda _: answers(f"{self.sandbox_url}/healthz"),
        )

    @property
    def api_urls(self) -> list[str]:
        """One for each API started, in order."""
        return [f"http://{HOST}:{port}" for port in self._api_ports]

    @property
    def api_url(self) -> str:
        """The first API's."""
        return self.api_urls[0]

    def start(
        self,
        *,
        apis: int = 1,
        workers: int = 1,
        dispatchers: int = 1,
        beat: bool = False,
        sandbox: bool = True,
    ) -> Self:
        """Start this many of each, together; return when all are ready."""
        wanted = [self.sandbox.start(wait=False)] if sandbox else []
        wanted += [self.add_api(wait=False) for _ in range(apis - len(self.apis))]
        wanted += [self.add_worker(wait=False) for _ in range(workers - len(self.workers))]
        wanted += [
            self.add_dispatcher(wait=False) for _ in range(dispatchers - len(self.dispatchers))
        ]
        if beat and self.beat is None:
            schedule = self.directory / "beat"
            self.beat = self.process(parts.beat(self.env, schedule)).start(wait=False)
            wanted.append(self.beat)
        for process in wanted:
            process.wait_ready()
        return self

    def add_api(
        self, *, env: Mapping[str, str] | None = None, processes: int = 1, wait: bool = True
    ) -> Process:
        """Start one more API on a port of its own. With one process, it is the server itself."""
        port = self.lab.port()
        self._api_ports.append(port)
        name = f"api-{len(self.apis) + 1}"
        command = parts.api({**self.env, **(env or {})}, port, processes=processes, name=name)
        process = self.process(command, lambda _: answers(f"http://{HOST}:{port}/healthz"))
        self.apis.append(process)
        return process.start(wait=wait)

    def add_worker(
        self,
        *,
        env: Mapping[str, str] | None = None,
        concurrency: int = 2,
        queues: str = "",
        wait: bool = True,
    ) -> Process:
        """Start one more Celery worker."""
        name = f"worker-{len(self.workers) + 1}"
        command = parts.worker(
            {**self.env, **(env or {})}, name, concurrency=concurrency, queues=queues
        )
        process = self.process(command, lambda worker: "ready." in worker.output())
        self.workers.append(process)
        return process.start(wait=wait)

    def add_dispatcher(self, *, env: Mapping[str, str] | None = None, wait: bool = True) -> Process:
        """Start one more dispatcher."""
        name = f"dispatcher-{len(self.dispatchers) + 1}"
        process = self.process(parts.dispatcher({**self.env, **(env or {})}, name))
        self.dispatchers.append(process)
        return process.start(wait=wait)

    def scale_workers(self, count: int) -> None:
        """Have exactly this many workers: end the youngest in order or start more."""
        while len(self.workers) > count:
            self.workers.pop().terminate()
        added = [self.add_worker(wait=False) for _ in range(count - len(self.workers))]
        for process in added:
            process.wait_ready()

    def process(
        self, command: Command, is_ready: Callable[[Process], bool] | None = None
    ) -> Process:
        """Any other program under the same care; it is not started yet."""
        log = self.directory / f"{command.name}.log"
        return Process(self.lab.launcher, command, log, is_ready)

    def manage(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run ``manage.py`` once; return what it printed on standard output.

        Raises ``AssertionError`` with its output when it fails.
        """
        command = parts.manage(self.env, *arguments)
        done = subprocess.run(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    @property
    def processes(self) -> list[Process]:
        beat = [self.beat] if self.beat else []
        return [self.sandbox, *self.workers, *self.dispatchers, *beat, *self.apis]

    def recover(self) -> None:
        """Let every server of the lab and every started process run again."""
        for server in self.lab.servers:
            server.recover()
        for process in self.processes:
            if process.is_running:
                process.cont()
            else:
                process.discard()
                process.start(wait=False)
        for process in self.processes:
            process.wait_ready()

    def close(self) -> None:
        """Kill what still runs."""
        for process in reversed(self.processes):
            process.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers(url: str, *, timeout: float = 1.0) -> bool:
    """Whether a GET is answered with a status below 500 within ``timeout`` seconds."""
    try:
        with urllib.request.urlopen(url, timeout=timeout):  # noqa: S310
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code < 500
    except OSError:
        return False
