"""Runs programs together: in order, again when they die, down in reverse order."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deploy.local import register
from deploy.local.console import Console
from deploy.local.launcher import Command, Launcher
from deploy.local.register import Entry
from deploy.local.together import together

#: Seconds before a program that died is started again: the first, then doubling to the last.
FIRST_DELAY_S, LAST_DELAY_S = 0.5, 10.0
#: A program that ran this long (seconds) has recovered; its next delay is the first again.
STEADY_S = 30.0
#: A program that ends this often before it is ready does so for a reason.
_TRIES_BEFORE_READY = 3
_LINE_LIMIT = 64 * 1024


class StartFailed(Exception):
    """A program did not become ready; the text tells which and what it printed last."""


@dataclass(frozen=True)
class Program:
    """A command to keep running.

    ``after``: names of programs that must be ready before it starts and that end only after
    it has ended. ``is_ready``: asked repeatedly in a thread until true; None: ready as soon
    as it runs. ``ready_line``: it is ready when it has printed this text (besides).
    ``ready_within_s``: how long that may take.
    """

    command: Command
    after: tuple[str, ...] = ()
    is_ready: Callable[[], bool] | None = None
    ready_line: str = ""
    ready_within_s: float = 60.0

    @property
    def name(self) -> str:
        return self.command.name


class Supervisor:
    """Keeps programs running until ``stop``. All methods belong to one event loop."""

    def __init__(self, launcher: Launcher, console: Console) -> None:
        self._launcher = launcher
        self._console = console
        self._kept: dict[str, _Kept] = {}
        self._hurry = asyncio.Event()
        # A thread for each process: one that waits must not keep another from waiting.
        self._waiting = ThreadPoolExecutor(max_workers=256, thread_name_prefix="wait")

    async def start(self, programs: Iterable[Program]) -> None:
        """Start them, those that others need first; return when all are ready.

        Raises ``StartFailed``; what has started by then goes on until ``stop``.
        """
        added = [
            _Kept(program, self._launcher, self._console, self._waiting) for program in programs
        ]
        self._kept |= {kept.program.name: kept for kept in added}
        await together(*(self._start(kept) for kept in added))

    async def run_once(self, command: Command) -> None:
        """Run a command to its end. Raises ``StartFailed`` when its exit code is not 0."""
        kept = _Kept(Program(command), self._launcher, self._console, self._waiting)
        code = await kept.run()
        if code:
            raise StartFailed(f"{command.name} ended with code {code}\n{kept.last_lines}")

    async def stop(self) -> None:
        """End all, each after those that need it; kill what outlives its grace."""
        await asyncio.gather(*(self._stop(kept) for kept in self._kept.values()))
        self._kept.clear()
        self._waiting.shutdown(wait=False)

    def hurry(self) -> None:
        """Make a ``stop`` that is under way kill what still runs."""
        self._hurry.set()

    async def _start(self, kept: "_Kept") -> None:
        for name in kept.program.after:
            await self._kept[name].ready.wait()
        await kept.start()

    async def _stop(self, kept: "_Kept") -> None:
        name = kept.program.name
        users = [other for other in self._kept.values() if name in other.program.after]
        await asyncio.gather(*(user.ended.wait() for user in users))
        await kept.stop(self._hurry)


class _Kept:
    """A program that is being kept running."""

    def __init__(
        self,
        program: Program,
        launcher: Launcher,
        console: Console,
        waiting: ThreadPoolExecutor,
    ) -> None:
        self.program = program
        self._waiting = waiting
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._launcher = launcher
        self._console = console
        self._last: deque[str] = deque(maxlen=20)
        self._entry: Entry | None = None
        self._said_ready = asyncio.Event()
        self._stopping = False
        self._exits = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def last_lines(self) -> str:
        """The last lines it printed."""
        return "\n".join(f"    {line}" for line in self._last)

    async def start(self) -> None:
        """Run it from now on; return when it is ready. Raises ``StartFailed``."""
        self._task = asyncio.create_task(self._keep())
        deadline = time.monotonic() + self.program.ready_within_s
        while not await self._is_ready():
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.program.name} did not become ready\n{self.last_lines}")
            if self._exits >= _TRIES_BEFORE_READY:
                raise StartFailed(f"{self.program.name} keeps ending\n{self.last_lines}")
            await asyncio.sleep(0.1)
        self.ready.set()

    async def run(self) -> int:
        """Run it once to its end and return its exit code (below 0: minus the signal)."""
        read, write = os.pipe()
        try:
            process, self._entry = self._launcher.popen(self.program.command, write)
        finally:
            os.close(write)
        output = asyncio.create_task(self._relay(read))
        # Not asyncio's own subprocess, whose end is told only when the last of its children
        # has closed the output, too.
        exit_code = asyncio.get_running_loop().run_in_executor(self._waiting, process.wait)
        try:
            return await asyncio.shield(exit_code)
        finally:
            # Children that a killed process left behind would hold its ports.
            register.kill(register.family(self._entry))
            await exit_code
            await asyncio.wait([output], timeout=1)
            output.cancel()
            self._launcher.ended(self._entry)
            self._entry = None

    async def stop(self, hurry: asyncio.Event) -> None:
        """End it in order, or kill it when its grace is over or there is hurry."""
        self._stopping = True
        if self._task is None:
            self.ended.set()
            return
        if self._entry is None:  # it waits for its next start
            self._task.cancel()
        else:
            register.ask(self._entry)
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait(
            [self._task, hurried],
            timeout=self.program.command.grace_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurried.cancel()
        if not self._task.done() and self._entry:
            self._console.line("up", f"{self.program.name} does not end and is killed")
            register.kill(register.family(self._entry))
        await asyncio.wait([self._task])
        self.ended.set()

    async def _keep(self) -> None:
        delay = FIRST_DELAY_S
        while not self._stopping:
            began = time.monotonic()
            code = await self.run()
            if self._stopping:
                break
            self._exits += 1
            if time.monotonic() - began >= STEADY_S:
                delay = FIRST_DELAY_S
            how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
            self._console.line("up", f"{self.program.name} {how}, starts again in {delay:g} s")
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY_S)

    async def _is_ready(self) -> bool:
        program = self.program
        if self._entry is None or (program.ready_line and not self._said_ready.is_set()):
            return False
        return program.is_ready is None or await asyncio.to_thread(program.is_ready)

    async def _relay(self, output: int) -> None:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(output, "rb", buffering=0)
        )
        # Not readline(), which raises on a line longer than its buffer.
        pending = b""
        try:
            while chunk := await stream.read(_LINE_LIMIT):
                *lines, pending = (pending + chunk).split(b"\n")
                if len(pending) > _LINE_LIMIT:
                    lines, pending = [*lines, pending], b""
                for line in lines:
                    self._print(line)
        finally:
            transport.close()
        if pending:
            self._print(pending)

    def _print(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\r")
        if self.program.ready_line and self.program.ready_line in line:
            self._said_ready.set()
        self._last.append(line)
        self._console.line(self.program.name, line)
