"""Rows of a namespace as fixtures of the format: taken from a database and planted into another one (FORMAT-4).

A record is a row: its name is `table/number`, its data all of its columns. Seals cover the namespace and the number of
a journal, so rows are planted as they were, into a namespace of the same name. The numbers of journals are therefore
taken from a range that no other database counts up to.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from statebook.errors import JournalCorrupt
from statebook.format_fixtures import FormatFixtures, StoredRecord, pack_row, unpack_row
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.medium import TABLES
from statebook_backends.sqlite.options import SqliteOptions

if TYPE_CHECKING:
    from sqlite3 import Cursor

_BESIDE: Final = "!numbers"


class SqliteFixtures(FormatFixtures):
    """The fixtures of `sqlite://`."""

    bound = True

    def __init__(self, options: SqliteOptions) -> None:
        """Open the database.

        Args:
            options: File and namespace.

        Raises:
            InvalidConfiguration: The file cannot be used.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        super().__init__("statebook_backends.sqlite")
        self._session = Session(options)
        self._namespace = options.namespace

    def prepare(self) -> None:
        number = 1 << 40 | secrets.randbelow(1 << 20) << 20

        def decide(cursor: Cursor) -> None:
            row = (number, self._namespace + _BESIDE, "number")
            cursor.execute("INSERT INTO thread (jid, namespace, name) VALUES (?, ?, ?)", row)

        self._session.run(decide, JournalCorrupt, None)

    def take(self) -> tuple[StoredRecord, ...]:
        found: list[StoredRecord] = []
        with self._session.database.readers.reading(JournalCorrupt) as cursor:
            for table, where in TABLES.items():
                cursor.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY rowid", (self._namespace,))  # noqa: S608
                columns = [column[0] for column in cursor.description]
                found += [
                    StoredRecord(f"{table}/{number:06}", pack_row(dict(zip(columns, row, strict=True))))
                    for number, row in enumerate(cursor)
                ]
        self._session.run(self._forget_number, JournalCorrupt, None)
        return tuple(found)

    def _forget_number(self, cursor: Cursor) -> None:
        cursor.execute("DELETE FROM thread WHERE namespace = ?", (self._namespace + _BESIDE,))

    def plant(self, records: Sequence[StoredRecord]) -> None:
        rows = [(_table_of(record), unpack_row(record.data)) for record in records]
        if not all(name.isidentifier() for _, row in rows for name in row):
            raise ValueError("a record of the fixture has no columns of a table")

        def decide(cursor: Cursor) -> None:
            for table, row in rows:
                marks = ", ".join("?" * len(row))
                cursor.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))  # noqa: S608

        self._session.run(decide, JournalCorrupt, None)

    def close(self) -> None:
        self._session.close()


def _table_of(record: StoredRecord) -> str:
    table = record.name.partition("/")[0]
    if table not in TABLES:
        raise ValueError(f"there is no table for the record {record.name}")
    return table
