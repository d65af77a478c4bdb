"""One readable stream of what many programs print."""

import os
import queue
import sys
import threading
import zlib
from typing import TextIO

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
#: Lines that wait for a terminal that does not read; what comes then is dropped and counted.
_WAITING_LINES = 10_000


class Console:
    """Prints lines, each behind the padded name of its program, coloured on a terminal.

    A reader that stands still (a pipe nobody empties, a terminal on hold) makes the console
    drop lines and say how many; it never makes a program wait.
    """

    def __init__(self, stream: TextIO = sys.stdout, *, width: int = 12) -> None:
        self._stream = stream
        self._width = width
        self._coloured = stream.isatty() and "NO_COLOR" not in os.environ
        self._lines: queue.Queue[str | None] = queue.Queue(_WAITING_LINES)
        self._dropped = 0
        self._lost = False
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def line(self, name: str, text: str) -> None:
        """Print a line for a program."""
        try:
            self._lines.put_nowait(f"{self._prefix(name)} {text}\n")
        except queue.Full:
            self._dropped += 1

    def plain(self, text: str) -> None:
        """Print text as it is, lines and all."""
        try:
            self._lines.put_nowait(f"{text}\n")
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float = 2.0) -> None:
        """Print what is left, within ``timeout`` seconds."""
        try:
            self._lines.put(None, timeout=timeout)
        except queue.Full:
            return
        self._writer.join(timeout)

    def _prefix(self, name: str) -> str:
        padded = f"{name:<{self._width}} |"
        if not self._coloured:
            return padded
        # The same name has the same colour at every start.
        colour = _COLOURS[zlib.crc32(name.encode()) % len(_COLOURS)]
        return f"\x1b[{colour}m{padded}\x1b[0m"

    def _write(self) -> None:
        while (text := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text = f"{self._prefix('up')} {dropped} lines were not shown\n{text}"
            if self._lost:
                continue
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # the reader has gone; go on for the programs' sake
                self._lost = True
