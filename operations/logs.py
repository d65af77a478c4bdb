"""JSON logs in which every line of an operation can be found by its ids."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from operations.redaction import redact

_context: ContextVar[dict[str, object]] = ContextVar("sekali_log_context", default={})  # noqa: B039


@contextmanager
def context(**ids: object) -> Iterator[None]:
    """Add these to every line logged inside the block; empty values are left out."""
    token = _context.set(
        {**_context.get(), **{name: value for name, value in ids.items() if value != ""}}
    )
    try:
        yield
    finally:
        _context.reset(token)


def current(name: str) -> str:
    """A value of the present context, or an empty string."""
    return str(_context.get().get(name, ""))


class JSONFormatter(logging.Formatter):
    """One line of JSON a record: time (UTC), level, logger, message, ids, traceback."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            **_context.get(),
        }
        if record.exc_info:
            line["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
