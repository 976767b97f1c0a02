"""MysqlEventTableSink: writes exported events into a table of a MySQL or MariaDB database, for reports in SQL."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from statebook.errors import InvalidConfiguration, JournalCorrupt, StoreClosed
from statebook.options import StoreUrl
from statebook.threads.event_table import row_of, rows_of
from statebook.threads.exporting import Delivery, SkippedEvent
from statebook_backends.mysql.database import Process
from statebook_backends.mysql.errors import Failure, classify_opening
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.schema import NO_RIGHT, engines_of, statements
from statebook_backends.mysql.server import examine
from statebook_backends.mysql.sql import Sql, Value
from statebook_backends.mysql.store import Link, tls_of, where
from statebook_backends.mysql.transactions import Transaction

_TABLES: Final = ("event", "skipped")
_FILE: Final = "event_table.sql"
_PATH: Final = f"statebook_backends/mysql/{_FILE}"
_EVENT: Final = (
    "INSERT INTO ~event (journal_id, seq, event_id, type, user_id, agent_id, session_id, thread_id, run_id, turn_id, "
    "occurred_at, required, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON DUPLICATE KEY UPDATE event_id = event_id"
)
_PLACES: Final = "SELECT seq, event_id FROM ~event WHERE journal_id = ? AND seq BETWEEN ? AND ?"
_SKIPPED: Final = (
    "INSERT INTO ~skipped (journal_id, seq, exporter, event_id, type, user_id, agent_id, session_id, thread_id, "
    "reason, skipped_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE seq = seq"
)


class MysqlEventTableSink:
    """Writes events into the table `event` and skips into the table `skipped`; see `event_table.sql`.

    Guarantees CURSOR-4 at the receiver: idempotent by event id within a journal, one transaction a delivery,
    acknowledged when it is committed. Events of many threads and stores may share a database. Safe from many threads;
    the child of a fork makes its own connections.
    """

    def __init__(self, target: str | StoreUrl | MysqlOptions) -> None:
        """Name the database. No I/O: the first delivery connects and makes the tables.

        Args:
            target: `mysql://user:password@host:port/database`, with the options of a store, or these options. The
                names of the tables start with `table_prefix`; the namespace plays no part.

        Raises:
            InvalidConfiguration: The URL or an option is wrong (ERR-6).
        """
        self._options = _options_of(target)
        self._sql = Sql(self._options.table_prefix)
        self._processes: dict[int, Process] = {}
        self._closed = False

    def __enter__(self) -> Self:
        """Give the sink itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def deliver(self, delivery: Delivery) -> int:
        """Insert what is not there yet, in one transaction.

        Args:
            delivery: The events.

        Returns:
            The last seq.

        Raises:
            BackendUnavailable: The server does not take it now; nothing of this delivery was written by this call.
            OutcomeUnknown: All of this delivery is there, or nothing of it; deliver again.
            JournalCorrupt: Another event stands in the place of one of these; nothing was written.
            LimitExceeded: An event is larger than the server takes.
            InvalidConfiguration: The database cannot be used, or the tables are missing and `create` is false (ERR-6).
            StoreClosed: The sink was closed.
        """
        rows = rows_of(delivery)
        places = {event.seq: event.event_id.encode() for event in delivery.events}

        def write(tx: Transaction) -> None:
            for journal_id, seq, event_id, *others, payload in rows:
                tx.change(_EVENT, journal_id, seq, event_id.encode(), *others, payload.encode())
            found = tx.ask(_PLACES, delivery.journal_id, delivery.events[0].seq, delivery.last_seq)
            if {row[0]: row[1] for row in found} != places:
                raise JournalCorrupt(
                    "another event stands in this one's place in the table",
                    what="event table",
                    key=delivery.key.name,
                    backend="mysql",
                )

        self._write(write, delivery.key.name)
        return delivery.last_seq

    def skipped(self, skipped: SkippedEvent) -> None:
        """Insert the record of a skip.

        Args:
            skipped: The record.

        Raises:
            BackendUnavailable: The server does not take it now.
            OutcomeUnknown: It is there, or not; hand it in again.
            InvalidConfiguration: The database cannot be used, or the tables are missing and `create` is false (ERR-6).
            StoreClosed: The sink was closed.
        """
        journal_id, seq, exporter, event_id, *others = row_of(skipped)
        values: tuple[Value, ...] = (journal_id, seq, exporter.encode(), event_id.encode(), *others)
        self._write(lambda tx: tx.change(_SKIPPED, *values), skipped.key.name)

    def close(self) -> None:
        """Close the connections; those in use behind their calls. A second call is harmless."""
        self._closed = True
        process = self._processes.get(os.getpid())
        if process is not None:
            process.pool.close()

    def _write(self, write: Callable[[Transaction], None], key: str) -> None:
        if self._closed:
            raise StoreClosed("this sink was closed", backend="mysql")
        process = self._processes.get(os.getpid()) or self._open()
        process.runner.run(write, JournalCorrupt, key)

    def _open(self) -> Process:
        """Connect, judge the server and see that the tables are there. Of threads that come at once one stays."""
        options = self._options
        tls = tls_of(options)
        link = Link(options, tls)
        try:
            server = examine(link, self._sql, options)
            _prepare(link, self._sql, options)
        except BaseException:
            link.close()
            raise
        made = Process(options, tls, self._sql, server.request_bytes_max)
        made.pool.adopt(link)
        kept = self._processes.setdefault(made.pid, made)
        if kept is not made or self._closed:
            made.pool.close()
        return kept


def _options_of(target: str | StoreUrl | MysqlOptions) -> MysqlOptions:
    if isinstance(target, MysqlOptions):
        target.check()
        return target
    url = StoreUrl.parse(target) if isinstance(target, str) else target
    if url.scheme != MysqlOptions.scheme:
        raise _refused(f"this sink takes mysql://, not {url.scheme}://", option="url")
    return MysqlOptions.from_url(url)


def _prepare(link: Link, sql: Sql, options: MysqlOptions) -> None:
    """See that the tables are there, in an engine that has transactions; make them where they are not."""
    names = tuple(f"{options.table_prefix}{table}" for table in _TABLES)
    try:
        found = engines_of(link, sql, names)
        if any(engine is None for _, engine in found):
            _create(link, options)
            found = engines_of(link, sql, names)
    except Failure as failure:
        if failure.code in NO_RIGHT:
            raise _refused(
                f"this user may not make the tables (error {failure.code}); grant it CREATE on {options.database}, or "
                f"run {_PATH} as another user and open with create=false"
            ) from failure.__cause__
        raise classify_opening(failure, where(options)) from failure.__cause__
    for name, engine in found:
        if engine is not None and engine.lower() != "innodb":
            raise _refused(
                f"the table {name} is held by {engine}, which has no transactions; run ALTER TABLE {name} ENGINE=InnoDB"
            )


def _create(link: Link, options: MysqlOptions) -> None:
    prefix = options.table_prefix
    if not options.create:
        raise _refused(
            f"{prefix}event or {prefix}skipped is missing, and create=false; run {_PATH} against the database"
            + (f", with sb_ replaced by {prefix}" if prefix != "sb_" else "")
        )
    for statement in statements(prefix, _FILE):
        link.run((statement,))


def _refused(message: str, *, option: str = "create") -> InvalidConfiguration:
    return InvalidConfiguration(message, option=option, backend=MysqlOptions.scheme)
