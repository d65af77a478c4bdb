"""Arming the named crash points of running processes."""

from pathlib import Path

from tests.lab.processes import Stack
from tests.lab.waiting import wait_until


class Crash:
    """The directory that a stack's processes look into when they reach a point."""

    def __init__(self, stack: Stack) -> None:
        self._directory = stack.directory / "crash"
        self._directory.mkdir(exist_ok=True)
        stack.env["CRASH_DIR"] = str(self._directory)

    def arm(self, point: str, what: str = "kill") -> None:
        """Have the next process that comes to the point killed (or ``stop``, ``kill-parent``)."""
        staged = self._directory / f".{point}"
        staged.write_text(what)
        staged.rename(self._directory / point)

    def wait(self, point: str, timeout: float = 15) -> int:
        """Wait until the point was reached; return the process id it happened in."""

        def reached() -> Path | None:
            return next(self._directory.glob(f"{point}.*.reached"), None)

        found = wait_until(reached, timeout=timeout, message=f"{point} was not reached")
        assert found is not None
        found.unlink()
        return int(found.name.removesuffix(".reached").rpartition(".")[2])
