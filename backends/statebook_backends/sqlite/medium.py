"""The raw rows of a namespace, one record a column, for conformance and forensics.

The columns by which a row is found (its number, its namespace, name, scope or kind) are what records are named by, and
are no records. A column that holds NULL is none either.

Table and column names in statements come from the list below and from the schema, never from data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statebook.errors import JournalCorrupt
from statebook.medium import Medium
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.errors import DriverError
from statebook_backends.sqlite.options import SqliteOptions

if TYPE_CHECKING:
    from sqlite3 import Cursor

_OF_JOURNALS: Final = "jid IN (SELECT jid FROM thread WHERE namespace = ?)"
_OF_SLOTS: Final = "sid IN (SELECT sid FROM slot WHERE namespace = ?)"
TABLES: Final = {
    "thread": "namespace = ?",
    "journal": "namespace = ?",
    "batch": _OF_JOURNALS,
    "cursor": _OF_JOURNALS,
    "slot": "namespace = ?",
    "chunk": _OF_SLOTS,
    "atomic_head": "namespace = ?",
    "atomic_blob": "namespace = ?",
}
"""The tables that hold what users store, each with the condition for one namespace."""
_ADDRESS: Final = frozenset({"namespace", "name", "scope", "kind"})
_NUMBERS: Final = frozenset({("thread", "jid"), ("journal", "jid"), ("slot", "sid")})


class SqliteMedium(Medium):
    """Records named `table/row/column`. Removing one removes its row; writing one of a removed row brings it back."""

    def __init__(self, options: SqliteOptions) -> None:
        """Open the medium.

        Args:
            options: File and namespace.

        Raises:
            InvalidConfiguration: The file cannot be used.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        # Settings of its own: a connection of its own, so that a store that is opened anew remembers no journal.
        self._session = Session(options.model_copy(update={"busy_timeout_ms": options.busy_timeout_ms + 1}))
        self._namespace = options.namespace
        self._removed: dict[tuple[str, int], dict[str, object]] = {}

    def records(self) -> tuple[str, ...]:
        found: list[str] = []
        with self._session.database.readers.reading(JournalCorrupt) as cursor:
            for table, where in TABLES.items():
                cursor.execute(f"SELECT rowid, * FROM {table} WHERE {where}", (self._namespace,))  # noqa: S608
                columns = [column[0] for column in cursor.description][1:]
                for row in cursor:
                    found.extend(
                        f"{table}/{row[0]}/{column}"
                        for column, value in zip(columns, row[1:], strict=True)
                        if value is not None and not _is_address(table, column)
                    )
        return tuple(sorted(found))

    def read(self, record: str) -> bytes:
        table, rowid, column = _parts(record)
        with self._session.database.readers.reading(JournalCorrupt) as cursor:
            value = _row(cursor, table, rowid).get(column)
        if value is None:
            raise KeyError(record)
        return value if isinstance(value, bytes) else str(value).encode()

    def write(self, record: str, data: bytes) -> None:
        table, rowid, column = _parts(record)
        removed = self._removed.get((table, rowid))

        def decide(cursor: Cursor) -> ValueError | None:
            kinds = {row[1]: row[2] for row in cursor.execute(f"PRAGMA table_info({table})")}
            try:
                value: object = data
                if kinds[column] != "BLOB":
                    value = int(data) if kinds[column] == "INTEGER" else data.decode()
                if removed is not None and _missing(cursor, table, rowid):
                    row = removed | {column: value, "rowid": rowid}
                    marks = ", ".join("?" * len(row))
                    names = ", ".join(row)
                    cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
                else:
                    cursor.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, rowid))  # noqa: S608
                    if cursor.rowcount == 0:
                        return ValueError(f"{record}: the row is gone, and was not removed through this medium")
            except (ValueError, OverflowError, DriverError) as error:
                return ValueError(f"{record} cannot hold these bytes: {error}")
            return None

        refused = self._session.run(decide, JournalCorrupt, record)
        if refused is not None:
            raise refused

    def remove(self, record: str) -> None:
        table, rowid, _ = _parts(record)

        def decide(cursor: Cursor) -> dict[str, object]:
            row = _row(cursor, table, rowid)
            cursor.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608
            return row

        row = self._session.run(decide, JournalCorrupt, record)
        if not row:
            raise KeyError(record)
        self._removed[table, rowid] = row

    def close(self) -> None:
        self._session.close()


def _is_address(table: str, column: str) -> bool:
    """Tell whether a row is found by this column. The name in `thread` is shown: there is nothing else in it."""
    if (table, column) == ("thread", "name"):
        return False
    return column in _ADDRESS or (table, column) in _NUMBERS


def _parts(record: str) -> tuple[str, int, str]:
    table, _, rest = record.partition("/")
    rowid, _, column = rest.partition("/")
    if table not in TABLES or not rowid.isdecimal() or not column.isidentifier():
        raise KeyError(record)
    return table, int(rowid), column


def _row(cursor: Cursor, table: str, rowid: int) -> dict[str, object]:
    cursor.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608
    columns = [column[0] for column in cursor.description]
    row = cursor.fetchone()
    return {} if row is None else dict(zip(columns, row, strict=True))


def _missing(cursor: Cursor, table: str, rowid: int) -> bool:
    found = cursor.execute(f"SELECT 1 FROM {table} WHERE rowid = ?", (rowid,)).fetchone()  # noqa: S608
    return found is None
