"""``make up``: the whole platform on this machine, under one supervisor.

Run as ``python -m deploy.local.up``. It ends in order on Ctrl-C, SIGTERM or SIGHUP, and with
``--follow-parent`` also when the process that started it is gone. ``--down`` ends such a run.
"""

import argparse
import asyncio
import http.client
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Coroutine, Mapping

from deploy.local import parts, register, stores
from deploy.local.console import Console
from deploy.local.home import Home, write_private
from deploy.local.launcher import TREE, Launcher
from deploy.local.occupancy import AlreadyRunning, Occupancy
from deploy.local.ports import HOST, Ports
from deploy.local.supervisor import Program, StartFailed, Supervisor
from deploy.local.together import together

_DEMO = ("USER_TOKEN", "USER_TOKEN_2", "OTHER_TOKEN", "ADMIN_USER", "ADMIN_PASSWORD")
_CORS_ORIGIN = "http://localhost:3000"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.up", description=__doc__)
    parser.add_argument("--follow-parent", action="store_true", help="end with the starter")
    parser.add_argument("--down", action="store_true", help="end the run of this tree")
    options = parser.parse_args()
    # Tokens, ledgers and logs of the run are for nobody else.
    os.umask(0o077)
    try:
        home = Home(TREE / ".local")
        occupancy = Occupancy(home)
        if options.down:
            print("It has ended." if end(home, occupancy) else "Nothing runs here.")
            return 0
        parent = os.getppid() if options.follow_parent else 0
        occupancy.take(parent)
    except AlreadyRunning as running:
        print(f"Sekali already runs in this tree (process {running.state.pid}).")
        print(running.state.addresses or "It is still starting.")
        return 0
    except (OSError, TimeoutError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 1
    console = Console()
    try:
        return asyncio.run(Up(home, occupancy, console, parent).run())
    finally:
        console.close()
        occupancy.release()


def end(home: Home, occupancy: Occupancy) -> bool:
    """End the run of this tree and what killed ones left; False when there was nothing.

    Raises ``TimeoutError`` when the run does not end.
    """
    ended = occupancy.end_other()
    occupancy.take()
    left = register.end_all(register.read(home.processes))
    home.run_env.unlink(missing_ok=True)
    home.processes.unlink(missing_ok=True)
    occupancy.release()
    return ended or bool(left)


class Up:
    """One run of the platform."""

    def __init__(self, home: Home, occupancy: Occupancy, console: Console, parent: int) -> None:
        self._home = home
        self._occupancy = occupancy
        self._console = console
        self._parent = parent
        self._ports = Ports()
        self._asked_to_end = asyncio.Event()

    async def run(self) -> int:
        """Start all, wait to be asked to end, end all; return the exit code."""
        self._home.run_env.unlink(missing_ok=True)
        processes = self._home.processes
        left = await asyncio.to_thread(register.end_all, register.read(processes))
        if left:
            self._say(f"ended what an earlier run left behind: {', '.join(left)}")
        with Launcher(processes, signs=[self._home.run_env]) as launcher:
            supervisor = Supervisor(launcher, self._console)
            self._listen(supervisor)
            follow = asyncio.create_task(self._follow_parent())
            code = 0
            try:
                if await self._unless_asked_to_end(self._start(supervisor)):
                    await self._asked_to_end.wait()
            except (StartFailed, RuntimeError, OSError) as error:
                self._say(f"cannot start: {error}")
                code = 1
            self._occupancy.tell("ending", parent=self._parent)
            self._say("ending")
            follow.cancel()
            self._home.run_env.unlink(missing_ok=True)
            await supervisor.stop()
        self._say("ended")
        return code

    async def _start(self, supervisor: Supervisor) -> None:
        began = time.monotonic()
        chosen = await asyncio.to_thread(stores.choose, self._home, self._ports)
        ports = {name: self._ports.take(port) for name, port in _FRONT_PORTS.items()}
        env = self._environment(chosen.urls, ports)
        await supervisor.start(chosen.programs)
        await asyncio.to_thread(chosen.provide)
        stored = tuple(program.name for program in chosen.programs)
        outside = Program(
            parts.sandbox(env, ports["sandbox"], self._home.path / "sandbox.sqlite3"),
            is_ready=lambda: _answers(ports["sandbox"], "/healthz"),
        )
        beat = Program(parts.beat(env, self._home.path / "beat"), after=stored)
        tokens = self._home.path / "demo.json"
        await together(
            supervisor.start([outside, beat]), supervisor.run_once(parts.fill(env, tokens))
        )
        await supervisor.start(_platform(env, ports, (*stored, outside.name)))
        given = self._write_run_env(env, ports)
        addresses = _addresses(given)
        self._occupancy.tell("running", parent=self._parent, addresses=addresses)
        self._say(f"ready after {time.monotonic() - began:.1f} s")
        self._console.plain(f"\n{addresses}\n")

    def _environment(self, urls: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
        sandbox = f"http://{HOST}:{ports['sandbox']}"
        env = {
            **os.environ,
            **urls,
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        env.setdefault("SECRET_KEY", self._home.secret("django"))
        env.setdefault("CORS_ORIGINS", f"{_CORS_ORIGIN},http://127.0.0.1:3000")
        env.setdefault("SUPPLIER_URL", f"{sandbox}/supplier")
        # A key of one's own means Stripe itself.
        if not env.get("STRIPE_API_KEY"):
            env["STRIPE_API_KEY"] = "sk_test_sandbox"
            env.setdefault("STRIPE_API_BASE", f"{sandbox}/gateway")
        return env

    def _write_run_env(self, env: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
        demo = json.loads((self._home.path / "demo.json").read_text())
        given = {
            "API_URL": f"http://{HOST}:{ports['api']}",
            **{name: str(demo[name]) for name in _DEMO},
            "SANDBOX_URL": f"http://{HOST}:{ports['sandbox']}",
            "FLOWER_URL": f"http://{HOST}:{ports['flower']}",
            **{name: env[name] for name in ("DATABASE_URL", "BROKER_URL", "CACHE_URL")},
            "LOCKS_URL": env["LOCKS_URL"],
            "CORS_ORIGIN": env["CORS_ORIGINS"].split(",")[0],
        }
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in given.items()]
        write_private(self._home.run_env, "".join(lines))
        return given

    def _listen(self, supervisor: Supervisor) -> None:
        def asked() -> None:
            if self._asked_to_end.is_set():
                supervisor.hurry()
            self._asked_to_end.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, asked)

    async def _follow_parent(self) -> None:
        if not self._parent:
            return
        # No event tells of it everywhere.
        while os.getppid() == self._parent:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        self._asked_to_end.set()

    async def _unless_asked_to_end(self, work: Coroutine[object, object, None]) -> bool:
        """Do the work; False when it was broken off because the run was asked to end."""
        doing = asyncio.create_task(work)
        asked = asyncio.create_task(self._asked_to_end.wait())
        await asyncio.wait([doing, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if doing.done():
            await doing
            return True
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        return False

    def _say(self, text: str) -> None:
        self._console.line("up", text)


_FRONT_PORTS = {"api": 8000, "sandbox": 8010, "flower": 5555}


def _platform(
    env: Mapping[str, str], ports: Mapping[str, int], needed: tuple[str, ...]
) -> list[Program]:
    api, flower = ports["api"], ports["flower"]
    workers = [
        Program(parts.worker(env, name), after=needed, ready_line="ready.")
        for name in ("worker-1", "worker-2")
    ]
    return [
        *workers,
        Program(parts.dispatcher(env), after=needed),
        Program(
            parts.api(env, api),
            after=needed,
            is_ready=lambda: _answers(api, "/readyz"),
        ),
        Program(
            parts.flower(env, flower),
            # It asks the workers who they are when it starts, and complains of no answer.
            after=(*needed, *(worker.name for worker in workers)),
            is_ready=lambda: _answers(flower, "/"),
        ),
    ]


_CURL_PURCHASE = (
    "curl -i {api}/api/v1/purchases {auth} -H 'Idempotency-Key: my-first-purchase'"
    """ -H 'Content-Type: application/json' -d '{{"sku": "sku-1", "quantity": 1}}'"""
)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _addresses(given: Mapping[str, str]) -> str:
    api, token = given["API_URL"], given["USER_TOKEN"]
    auth = f"-H 'Authorization: Bearer {token}'"
    return f"""\
API      {api}/api/v1/     (documentation {api}/api/docs)
Admin    {api}/admin/      (user and password in .local/run.env)
Flower   {given["FLOWER_URL"]}      (tasks too with: WORKER_EVENTS=1 make up)
Sandbox  {given["SANDBOX_URL"]}/ledger

A purchase (send it again: it happens once), its status, and what you own then:

{_CURL_PURCHASE.format(api=api, auth=auth)}
curl -s '{api}/api/v1/operations?page_size=1' {auth}
curl -s {api}/api/v1/inventory {auth}"""


if __name__ == "__main__":
    sys.exit(main())
