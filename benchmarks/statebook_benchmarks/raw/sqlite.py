"""SQLite: a conditional update of the head and one row a batch, in one transaction, at the store's `synchronous`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane, refused

_TABLES: Final = """
CREATE TABLE head (jid INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, nonce TEXT NOT NULL, last_seq INTEGER NOT NULL);
CREATE TABLE batch (
    jid INTEGER NOT NULL, last_seq INTEGER NOT NULL, batch_id TEXT NOT NULL, body BLOB NOT NULL,
    UNIQUE (jid, last_seq), UNIQUE (batch_id, jid)
);
"""
_ADVANCE: Final = "UPDATE head SET last_seq = ? WHERE jid = ? AND epoch = 1 AND nonce = 'nonce' AND last_seq = ?"
_INSERT: Final = "INSERT INTO batch (jid, last_seq, batch_id, body) VALUES (?, ?, ?, ?)"


class SqliteEngine(RawEngine):
    """A database of its own beside the store's."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        store = Path(url.path[1:])
        self._path = store.with_name(f"{store.name}.{name}")
        self._synchronous = dict(url.query).get("synchronous", "full")
        with closing(self._connect()) as connection:
            connection.executescript(_TABLES)
            connection.executemany(
                "INSERT INTO head VALUES (?, 1, 'nonce', 0)", [(thread,) for thread in range(threads)]
            )

    @property
    def work(self) -> str:
        """What one append does."""
        return f"BEGIN IMMEDIATE, conditional UPDATE, INSERT, COMMIT at synchronous={self._synchronous}"

    def lane(self) -> RawLane:
        """A lane with its own connection."""
        return _Lane(self._connect())

    def destroy(self) -> None:
        """Remove the database."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        if self._synchronous not in ("full", "normal", "extra"):
            raise ValueError(f"synchronous={self._synchronous} is none of full, normal, extra")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return connection


class _Lane(RawLane):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._seqs: dict[int, int] = {}

    def append(self, thread: int, body: bytes) -> None:
        execute = self._cursor.execute
        execute("BEGIN IMMEDIATE")
        self._write(thread, body)
        execute("COMMIT")

    def append_group(self, bodies: Sequence[bytes]) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        for thread, body in enumerate(bodies):
            self._write(thread, body)
        self._cursor.execute("COMMIT")

    def _write(self, thread: int, body: bytes) -> None:
        cursor = self._cursor
        seq = self._seqs.get(thread, 0)
        cursor.execute(_ADVANCE, (seq + 1, thread, seq))
        if cursor.rowcount != 1:
            raise refused()
        cursor.execute(_INSERT, (thread, seq + 1, f"{thread}-{seq + 1:012d}", body))
        self._seqs[thread] = seq + 1

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
