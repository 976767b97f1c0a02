"""EventTableSink: writes exported events into a table of a SQLite file, for reports in SQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from statebook.errors import BackendUnavailable, JournalCorrupt, StoreClosed
from statebook.threads.exporting import Delivery, SkippedEvent

if TYPE_CHECKING:
    from sqlite3 import Connection

_EVENT: Final = (
    "INSERT INTO event (journal_id, seq, event_id, type, user_id, agent_id, session_id, thread_id, run_id, turn_id, "
    "occurred_at, required, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (journal_id, event_id) DO NOTHING"
)
_SKIPPED: Final = (
    "INSERT INTO skipped (journal_id, seq, exporter, event_id, type, user_id, agent_id, session_id, thread_id, reason, "
    "skipped_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (journal_id, seq, exporter) DO NOTHING"
)


EventRow: TypeAlias = "tuple[str, int, str, str, str | None, str, str, str, str | None, str | None, int, int, str]"
"""A row of `event`, its columns in the order of `event_table.sql`."""

SkippedRow: TypeAlias = "tuple[str, int, str, str, str, str | None, str, str, str, str, int]"
"""A row of `skipped`, its columns in the order of `event_table.sql`."""


def rows_of(delivery: Delivery) -> tuple[EventRow, ...]:
    """Turn a delivery into rows of `event`.

    Args:
        delivery: The events.

    Returns:
        As many rows, in their order.
    """
    key = delivery.key
    return tuple(
        (
            delivery.journal_id,
            event.seq,
            event.event_id,
            event.type,
            key.user_id,
            key.agent_id,
            key.session_id,
            key.thread_id,
            event.run_id,
            event.turn_id,
            event.occurred_at,
            int(event.required),
            event.payload.decode(),
        )
        for event in delivery.events
    )


def row_of(skipped: SkippedEvent) -> SkippedRow:
    """Turn the record of a skip into a row of `skipped`.

    Args:
        skipped: The record.

    Returns:
        The row.
    """
    key = skipped.key
    return (
        skipped.journal_id,
        skipped.seq,
        skipped.exporter,
        skipped.event_id,
        skipped.type,
        key.user_id,
        key.agent_id,
        key.session_id,
        key.thread_id,
        skipped.reason,
        skipped.skipped_at,
    )


class EventTableSink:
    """Writes events into the table `event` and skips into the table `skipped`; see `event_table.sql`.

    Guarantees CURSOR-4 at the receiver: idempotent by event id within a journal, one transaction a delivery,
    acknowledged when it is committed. Events of many threads may share a file. Safe from many threads.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = 5.0) -> None:
        """Name the file. No I/O; tables are made by the first delivery.

        Args:
            path: The SQLite file.
            timeout_s: How long to wait for another process's transaction, in seconds.
        """
        self._path = path
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False

    def __enter__(self) -> Self:
        """Give the sink itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def deliver(self, delivery: Delivery) -> int:
        """Insert what is not there yet, in one transaction.

        Args:
            delivery: The events.

        Returns:
            The last seq.

        Raises:
            BackendUnavailable: The file cannot be written now; nothing of this delivery is there, or all of it.
            JournalCorrupt: Another event stands in the place of one of these.
            StoreClosed: The sink was closed.
        """
        rows = rows_of(delivery)
        self._write(lambda connection: connection.executemany(_EVENT, rows))
        return delivery.last_seq

    def skipped(self, skipped: SkippedEvent) -> None:
        """Insert the record of a skip.

        Args:
            skipped: The record.

        Raises:
            BackendUnavailable: The file cannot be written now.
            StoreClosed: The sink was closed.
        """
        row = row_of(skipped)
        self._write(lambda connection: connection.execute(_SKIPPED, row))

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _write(self, write: Callable[[Connection], object]) -> None:
        import sqlite3

        with self._lock:
            if self._closed:
                raise StoreClosed("this sink was closed")
            try:
                connection = self._connection or self._open()
                with connection:
                    write(connection)
            except sqlite3.IntegrityError as error:
                raise JournalCorrupt(
                    "another event stands in this one's place in the table", what="event table"
                ) from error
            except sqlite3.Error as error:
                self._drop()
                raise BackendUnavailable("the event table cannot be written now") from error

    def _open(self) -> Connection:
        import sqlite3

        connection = sqlite3.connect(self._path, timeout=self._timeout_s, check_same_thread=False)
        self._connection = connection
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(
            resources.files("statebook.threads").joinpath("event_table.sql").read_text(encoding="utf-8")
        )
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
