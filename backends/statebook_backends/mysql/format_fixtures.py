"""Rows of a namespace as fixtures of the format: taken from a database and planted into another one (FORMAT-4).

A record is a row: its name is `table/number`, its data all of its columns. Seals cover the namespace and the number of
a journal, so rows are planted as they were, into a namespace of the same name. The numbers of journals are therefore
taken from a range that no other database counts up to; a server counts on from there afterwards, which costs nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from statebook.errors import JournalCorrupt
from statebook.format_fixtures import Cell, FormatFixtures, StoredRecord, pack_row, unpack_row
from statebook_backends.mysql.database import Database
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.transactions import Transaction

_OF_JOURNALS: Final = "jid IN (SELECT jid FROM ~thread WHERE namespace = ?)"
_OF_SLOTS: Final = "sid IN (SELECT sid FROM ~slot WHERE namespace = ?)"
_TABLES: Final = {
    "thread": ("namespace = ?", "jid"),
    "journal": ("namespace = ?", "jid"),
    "batch": (_OF_JOURNALS, "jid, last_seq"),
    "cursor": (_OF_JOURNALS, "jid, exporter"),
    "slot": ("namespace = ?", "sid"),
    "chunk": (_OF_SLOTS, "sid, first_item"),
    "atomic_head": ("namespace = ?", "scope"),
    "atomic_blob": ("namespace = ?", "scope, name"),
}
_AT_ONCE: Final = 16


class MysqlFixtures(FormatFixtures):
    """The fixtures of `mysql://`."""

    bound = True

    def __init__(self, options: MysqlOptions) -> None:
        """Connect.

        Args:
            options: Database and namespace.

        Raises:
            InvalidConfiguration: The database cannot be used.
            BackendUnavailable: The server does not answer.
        """
        super().__init__("statebook_backends.mysql")
        self._database = Database(options)

    def prepare(self) -> None:
        number = 1 << 40 | secrets.randbelow(1 << 20) << 20

        def decide(tx: Transaction) -> None:
            tx.change("INSERT INTO ~thread (jid, namespace, name) VALUES (?, ?, ?)", number, b"!numbers", b"number")
            tx.change("DELETE FROM ~thread WHERE jid = ?", number)

        self._database.run(decide, JournalCorrupt, None)

    def take(self) -> tuple[StoredRecord, ...]:
        found: list[StoredRecord] = []
        for table, (where, order) in _TABLES.items():
            columns = [
                name.decode() if isinstance(name, bytes) else str(name)
                for name, *_ in self._database.ask(JournalCorrupt, None, f"SHOW COLUMNS FROM ~{table}")
            ]
            query = f"SELECT {', '.join(columns)} FROM ~{table} WHERE {where} ORDER BY {order}"  # noqa: S608
            rows = self._database.ask(JournalCorrupt, None, query, self._database.namespace)
            found += [
                StoredRecord(f"{table}/{number:06}", pack_row(dict(zip(columns, row, strict=True))))
                for number, row in enumerate(rows)
            ]
        return tuple(found)

    def plant(self, records: Sequence[StoredRecord]) -> None:
        rows = [(_table_of(record), unpack_row(record.data)) for record in records]
        if not all(name.isidentifier() for _, row in rows for name in row):
            raise ValueError("a record of the fixture has no columns of a table")
        for start in range(0, len(rows), _AT_ONCE):
            self._insert(rows[start : start + _AT_ONCE])

    def _insert(self, rows: Sequence[tuple[str, Mapping[str, Cell]]]) -> None:
        def decide(tx: Transaction) -> None:
            for table, row in rows:
                marks = ", ".join("?" * len(row))
                tx.change(f"INSERT INTO ~{table} ({', '.join(row)}) VALUES ({marks})", *row.values())  # noqa: S608

        self._database.run(decide, JournalCorrupt, None)

    def close(self) -> None:
        self._database.close()


def _table_of(record: StoredRecord) -> str:
    table = record.name.partition("/")[0]
    if table not in _TABLES:
        raise ValueError(f"there is no table for the record {record.name}")
    return table
