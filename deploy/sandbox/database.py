"""The sandbox's SQLite file: everything it must still know after it was killed."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SCHEMA = """
-- A payment intent; `key` is the idempotency key of the call that made it.
CREATE TABLE IF NOT EXISTS intent (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    amount INTEGER NOT NULL,
    currency TEXT NOT NULL,
    status TEXT NOT NULL,
    payment_method TEXT,
    metadata TEXT NOT NULL,
    last_payment_error TEXT,
    latest_charge TEXT,
    created REAL NOT NULL,
    canceled REAL,
    cancellation_reason TEXT
);
-- The ledger: one row for each time that money moved or a card was refused.
CREATE TABLE IF NOT EXISTS charge (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    intent TEXT NOT NULL,
    key TEXT,
    amount INTEGER NOT NULL,
    currency TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('succeeded', 'declined')),
    failure_code TEXT,
    decline_code TEXT,
    amount_refunded INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS refund (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    charge TEXT NOT NULL,
    intent TEXT NOT NULL,
    amount INTEGER NOT NULL,
    currency TEXT NOT NULL,
    reason TEXT,
    metadata TEXT NOT NULL,
    created REAL NOT NULL
);
-- Answers kept under their idempotency key.
CREATE TABLE IF NOT EXISTS answer (
    key TEXT PRIMARY KEY,
    endpoint TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BLOB NOT NULL,
    request_id TEXT NOT NULL,
    created REAL NOT NULL
);
-- `calls` counts those the fault was weighed for, `hits` those it struck.
CREATE TABLE IF NOT EXISTS fault (
    part TEXT PRIMARY KEY,
    setting TEXT NOT NULL,
    calls INTEGER NOT NULL DEFAULT 0,
    hits INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS snapshot (
    user TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    items TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS charge_intent ON charge (intent);
CREATE INDEX IF NOT EXISTS refund_intent ON refund (intent);
CREATE INDEX IF NOT EXISTS intent_created ON intent (created);
"""


class Database:
    """One connection in autocommit mode, used by one event loop.

    A statement takes well under a millisecond, so it may run on the loop itself.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
        self._connection.row_factory = sqlite3.Row
        # A commit is in the file before the answer goes out: a kill loses nothing.
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Run one statement with positional values."""
        return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.execute(statement, *values).fetchall()

    def row(self, statement: str, *values: object) -> sqlite3.Row | None:
        """The first row of a query, or ``None``."""
        found: sqlite3.Row | None = self.execute(statement, *values).fetchone()
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside at once, or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it."""
        self._connection.close()
