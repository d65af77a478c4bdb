"""Single statements: against a database that may be restarting, or crowded; and prepared ones."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from django.db import InterfaceError, InternalError, OperationalError, connection
from psycopg import errors as pg
from psycopg.types.string import StrDumper

T = TypeVar("T")

#: A statement that lost against others (serialization failure, deadlock) is tried this often.
CONTENTION_TRIES = 12
#: The longest pause between two of these tries, in seconds.
CONTENTION_PAUSE = 0.25
#: The same while the database is away.
AWAY_PAUSE = 1.0


class DatabaseUnavailable(Exception):
    """The database does not answer, or could not get through the crowd. Try again later."""


class RowLocked(DatabaseUnavailable):
    """Another transaction held the row for longer than ``lock_timeout``."""


def persistently(
    statement: Callable[[], T], *, again: Callable[[], T] | None = None, patience: float = 0
) -> T:
    """Run one statement of its own transaction that is safe to run twice.

    A connection that was kept and has died meanwhile is made anew once: this is the health
    check of kept connections, without a statement of its own. Serialization failures and
    deadlocks are tried again a bounded number of times.

    A server that takes no changes is waited for as if it were away.

    Inside a transaction nothing can be tried again, and errors come as they are.

    :param again: what to run instead after the first try, whose answer may only be lost
    :param patience: seconds to wait for a database that is away
    :raises RowLocked: a row was locked by others
    :raises DatabaseUnavailable: it did not get through
    """
    if connection.in_atomic_block:
        return statement()
    deadline = time.monotonic() + patience
    reconnected, contended = False, 0
    while True:
        was_connected = connection.connection is not None
        try:
            return statement()
        except (OperationalError, InterfaceError, InternalError) as error:
            if isinstance(error, InternalError) and not is_read_only(error):
                raise
            statement = again or statement
            if isinstance(error.__cause__, pg.LockNotAvailable):
                raise RowLocked from error
            if isinstance(error.__cause__, pg.SerializationFailure | pg.DeadlockDetected):
                contended += 1
                if contended == CONTENTION_TRIES:
                    raise DatabaseUnavailable("Too many want the same rows.") from error
                _rest(min(CONTENTION_PAUSE, 0.004 * 2**contended))
                continue
            died = was_connected and _is_dead()
            connection.close()
            if died and not reconnected:
                reconnected = True
            elif time.monotonic() < deadline:
                _rest(AWAY_PAUSE)
            else:
                raise DatabaseUnavailable(type(error).__name__) from error


class _PreparingCursor(psycopg.Cursor[Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Text, and not whatever PostgreSQL takes it for: that may differ from place to place.
        self.adapters.register_dumper(str, StrDumper)


@contextmanager
def preparing() -> Iterator[Any]:
    """A cursor whose statements PostgreSQL parses and plans a few times, and then knows.

    For the statements that are run for every operation: left to itself PostgreSQL spends nine
    tenths of its time with reading them. Not behind a pooler, where a session is not ours
    (``prepare_threshold`` in the settings).
    """
    connection.ensure_connection()
    session = connection.connection
    usual, session.cursor_factory = session.cursor_factory, _PreparingCursor
    try:
        cursor = connection.cursor()
    finally:
        session.cursor_factory = usual
    with cursor:
        yield cursor


def is_read_only(error: BaseException) -> bool:
    """The server takes no changes for now: a standby, or one under maintenance."""
    return isinstance(error.__cause__, pg.ReadOnlySqlTransaction)


def _rest(longest: float) -> None:
    time.sleep(random.uniform(0, longest))  # noqa: S311


def _is_dead() -> bool:
    return connection.connection is None or connection.connection.closed
