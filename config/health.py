"""``/healthz``: this process answers. ``/readyz``: it has what it needs to serve.

Both are answered beside the pool of threads, so that they tell the truth also when every
thread waits for a database that does not answer, and need neither token nor ``Host``.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.guard import Application, Message, Receive, Scope, Send, plain
from operations.broker import get_broker

log = logging.getLogger(__name__)

#: Seconds for each check; they run side by side.
TIMEOUT = 2.0


class Health:
    """ASGI middleware that answers the two addresses and passes on everything else."""

    def __init__(self, app: Application) -> None:
        self._app = app
        # A thread keeps its connection, so what asks the database shares one.
        database, broker = (ThreadPoolExecutor(1, thread_name_prefix="check") for _ in range(2))
        self._checks = [
            Check("database", _ask_database, database),
            Check("migrations", _compare_migrations, database),
            Check("broker", _ask_broker, broker),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path not in ("/healthz", "/readyz"):
            await self._app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            start, content = plain(405, "method_not_allowed", "Only GET and HEAD.")
            start["headers"] += [(b"allow", b"GET, HEAD")]
        elif path == "/healthz":
            start, content = _json(200, {"status": "ok"})
        else:
            start, content = await self._readiness()
        start["headers"] += [(b"cache-control", b"no-store")]
        await send(start)
        await send({"type": "http.response.body", "body": content})

    async def _readiness(self) -> tuple[Message, bytes]:
        said = await asyncio.gather(*(check.ask() for check in self._checks))
        results = {check.name: word for check, word in zip(self._checks, said, strict=True)}
        failed = [name for name, word in results.items() if word != "ok"]
        if not failed:
            return _json(200, {"status": "ok", **results})
        return plain(503, "unavailable", f"Not ready: {', '.join(failed)}.", **results)


class Check:
    """One question, asked beside the threads that serve, at most once at a time."""

    def __init__(self, name: str, ask: Callable[[], str], thread: ThreadPoolExecutor) -> None:
        self.name = name
        self._ask = ask
        self._thread = thread
        self._asked: Future[str] | None = None

    async def ask(self) -> str:
        """``ok``, or what is wrong. Whoever asks meanwhile waits for the same answer."""
        if self._asked is None or self._asked.done():
            self._asked = self._thread.submit(self._answer)
        answer = asyncio.wrap_future(self._asked)
        done, _ = await asyncio.wait([answer], timeout=TIMEOUT)
        return answer.result() if done else "does not answer in time"

    def _answer(self) -> str:
        try:
            return self._ask()
        except Exception as error:  # noqa: BLE001  (whatever it is, the answer is no)
            log.warning("%s is not ready: %s", self.name, error)
            # It may be the connection that is broken: the next check makes a new one.
            connection.close()
            return "does not answer"


def _ask_database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def _compare_migrations() -> str:
    known = set(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)
    missing = known - set(MigrationRecorder(connection).applied_migrations())
    return f"{len(missing)} not applied" if missing else "ok"


def _ask_broker() -> str:
    get_broker().ping()
    return "ok"


def _json(status: int, members: dict[str, str]) -> tuple[Message, bytes]:
    content = json.dumps(members).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}, content
