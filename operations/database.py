"""Single statements against a database that may be restarting, or crowded."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection
from psycopg import errors as pg

T = TypeVar("T")

#: A statement that lost against others (serialization failure, deadlock) is tried this often.
CONTENTION_TRIES = 12
#: The longest pause between two of these tries, in seconds.
CONTENTION_PAUSE = 0.25


class DatabaseUnavailable(Exception):
    """The database does not answer, or could not get through the crowd. Try again later."""


def persistently(statement: Callable[[], T]) -> T:
    """Run one statement of its own transaction that is safe to run twice.

    A connection that was kept and has died meanwhile is made anew once: this is the health
    check of kept connections, without a statement of its own. Serialization failures and
    deadlocks are tried again a bounded number of times.

    Inside a transaction nothing can be tried again, and errors come as they are.

    :raises DatabaseUnavailable: it did not get through
    """
    if connection.in_atomic_block:
        return statement()
    reconnected, contended = False, 0
    while True:
        was_connected = connection.connection is not None
        try:
            return statement()
        except (OperationalError, InterfaceError) as error:
            if isinstance(error.__cause__, pg.SerializationFailure | pg.DeadlockDetected):
                contended += 1
                if contended == CONTENTION_TRIES:
                    raise DatabaseUnavailable("Too many want the same rows.") from error
                time.sleep(random.uniform(0, min(CONTENTION_PAUSE, 0.004 * 2**contended)))  # noqa: S311
                continue
            died = was_connected and _is_dead()
            connection.close()
            if reconnected or not died:
                raise DatabaseUnavailable(type(error).__name__) from error
            reconnected = True


def _is_dead() -> bool:
    return connection.connection is None or connection.connection.closed
