"""A process that takes leases on command: ``Holder`` drives it, ``python -m`` is it.

The process is a bare Django project with nothing but ``locks`` in it.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.lab.waiting import wait_until


class Holder:
    """The process, seen from the test. Every method waits for the answer."""

    def __init__(self, locks_url: str, *, timeout: float = 0.5) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.locks.holder", locks_url, str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, **how: Any) -> Any:
        """Have it do something, and return what it says."""
        self.tell(what, **how)
        return self.answer()

    def tell(self, what: str, **how: Any) -> None:
        """Have it do something without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, **how}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        """Freeze it; return when it is frozen."""
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state_of(self.pid) == "T", message="not stopped")

    def cont(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def in_a_child(action: Callable[[], object]) -> str:
    """What ``action`` returns, or the name of what it raises, in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(action())
        except Exception as error:  # noqa: BLE001  (told to the parent)
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _serve(locks_url: str, timeout: float) -> None:
    from django.conf import settings

    settings.configure(LOCKS_URL=locks_url, LOCKS_TIMEOUT=timeout)

    from locks import Lease, LeaseError

    lease: Lease | None = None
    for line in sys.stdin:
        order = json.loads(line)
        what = order.pop("what")
        answer: Any = None
        try:
            if what in ("acquire", "enter"):
                lease = Lease(**{"fenced": False, **order})
                if what == "acquire":
                    answer = lease.acquire()
                else:
                    lease.__enter__()
            elif what == "hold the gil":
                # Unlike other foreign calls, one through PyDLL keeps the interpreter's lock.
                ctypes.PyDLL(None).usleep(int(order["seconds"] * 1_000_000))
            elif lease is None:
                raise LeaseError("nothing acquired yet")
            elif what == "exit":
                lease.__exit__(None, None, None)
            elif what == "fork and release":
                answer = in_a_child(lease.release)
            elif what in ("lost", "fence", "owner"):
                answer = getattr(lease, what)
            else:
                answer = getattr(lease, what)()
        except LeaseError as error:
            answer = type(error).__name__
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
