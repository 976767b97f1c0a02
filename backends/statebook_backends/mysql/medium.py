"""The raw rows of a namespace, one record a column, for conformance and forensics.

The columns by which a row is found (its key, its namespace, name, scope or kind) are what records are named by, and are
no records. A column that holds NULL is none either.

Table and column names in statements come from the list below, never from data.
"""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.errors import JournalCorrupt
from statebook.medium import Medium
from statebook_backends.mysql.database import Database
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import Row, Value
from statebook_backends.mysql.transactions import Failed, Transaction

_OF_JOURNALS: Final = "jid IN (SELECT jid FROM ~thread WHERE namespace = ?)"
_OF_SLOTS: Final = "sid IN (SELECT sid FROM ~slot WHERE namespace = ?)"
_OWN: Final = "namespace = ?"


class _Table(msgspec.Struct, frozen=True):
    """A table: what finds its rows, and what they hold.

    Attributes:
        where: Which rows are of a namespace.
        key: The columns of its primary key, but the namespace.
        numbers: Its other columns that hold integers.
        texts: Its other columns that hold text.
        bytes: Its other columns that hold bytes.
        hidden: Other columns that are no records: a row is found by them.
    """

    where: str
    key: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    bytes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return self.numbers + self.texts + self.bytes

    @property
    def columns(self) -> tuple[str, ...]:
        return self.key + self.hidden + self.cells


_TABLES: Final = {
    "thread": _Table(_OWN, ("jid",), bytes=("name",), hidden=("namespace",)),
    "journal": _Table(
        _OWN,
        ("jid",),
        ("format", "epoch", "first_seq", "generation", "last_seq", "checkpoint_seq"),
        (
            *("user_id", "agent_id", "session_id", "thread_id", "journal_id", "state", "claim_nonce", "writer_id"),
            *("nonce", "chain", "seal"),
        ),
        hidden=("namespace", "name"),
    ),
    "batch": _Table(
        _OF_JOURNALS, ("jid", "last_seq"), ("first_seq", "epoch"), ("digest", "chain"), ("batch_id", "body")
    ),
    "cursor": _Table(
        _OF_JOURNALS, ("jid", "exporter"), ("acked_seq", "epoch", "version"), ("journal_id", "nonce", "seal")
    ),
    "slot": _Table(
        _OWN,
        ("sid",),
        ("format", "version", "live", "items", "size"),
        ("user_id", "session_id", "slot_key", "digest", "seal"),
        ("session", "value"),
        hidden=("namespace", "kind", "name"),
    ),
    "chunk": _Table(_OF_SLOTS, ("sid", "first_item"), texts=("sizes",), bytes=("body",)),
    "atomic_head": _Table(_OWN, ("namespace", "scope"), texts=("token",), bytes=("data",)),
    "atomic_blob": _Table(_OWN, ("namespace", "scope", "name"), bytes=("data",)),
}


class MysqlMedium(Medium):
    """Records named `table/key/column`. Removing one removes its row; writing one of a removed row brings it back."""

    def __init__(self, options: MysqlOptions) -> None:
        """Open the medium.

        Args:
            options: Database and namespace.

        Raises:
            InvalidConfiguration: The database cannot be used.
            BackendUnavailable: The server does not answer.
        """
        self._database = Database(options)
        self._removed: dict[tuple[str, str], Row] = {}

    def records(self) -> tuple[str, ...]:
        sql = self._database.sql
        queries = tuple(
            sql(f"SELECT {', '.join(table.columns)} FROM ~{name} WHERE {table.where}", self._database.namespace)  # noqa: S608
            for name, table in _TABLES.items()
        )
        answers = self._database.read(queries, JournalCorrupt, None)
        found: list[str] = []
        for (name, table), answer in zip(_TABLES.items(), answers, strict=True):
            width, cells = len(table.key), len(table.key) + len(table.hidden)
            for row in answer.rows:
                address = ".".join(_shown(value) for value in row[:width])
                found.extend(
                    f"{name}/{address}/{column}"
                    for column, value in zip(table.cells, row[cells:], strict=True)
                    if value is not None
                )
        return tuple(sorted(found))

    def read(self, record: str) -> bytes:
        name, address, column = _parts(record)
        table = _TABLES[name]
        query = f"SELECT {column} FROM ~{name} WHERE {_by_key(table)}"  # noqa: S608
        rows = self._database.ask(JournalCorrupt, record, query, *_key(address))
        value = rows[0][0] if rows else None
        if value is None:
            raise KeyError(record)
        return value if isinstance(value, bytes) else str(value).encode()

    def write(self, record: str, data: bytes) -> None:
        name, address, column = _parts(record)
        table = _TABLES[name]
        value: Value = data
        if column in table.numbers:
            value = int(data)
        elif column in table.texts:
            value = data.decode()
        removed = self._removed.get((name, address))

        def change(tx: Transaction) -> int:
            found = tx.ask(f"SELECT 1 FROM ~{name} WHERE {_by_key(table)}", *_key(address))  # noqa: S608
            if not found and removed is None:
                return 0
            if not found and removed is not None:
                row = dict(zip(table.columns, removed, strict=True)) | {column: value}
                marks = ", ".join("?" * len(row))
                tx.change(f"INSERT INTO ~{name} ({', '.join(row)}) VALUES ({marks})", *row.values())  # noqa: S608
            else:
                tx.change(f"UPDATE ~{name} SET {column} = ? WHERE {_by_key(table)}", value, *_key(address))  # noqa: S608
            return tx.commit()[-1]

        try:
            met = self._database.process.runner.transact(change, repeats_duplicates=False)
        except Failed as failed:
            if failed.failure.dead or failed.failure.undecided:
                raise self._database.process.runner.outcome(failed.failure, JournalCorrupt, record) from failed
            raise ValueError(f"{record} cannot hold these bytes: error {failed.failure.code}") from failed
        if met != 1:
            raise ValueError(f"{record}: the row is gone, and was not removed through this medium")

    def remove(self, record: str) -> None:
        name, address, _ = _parts(record)
        table = _TABLES[name]

        def change(tx: Transaction) -> Row | None:
            query = f"SELECT {', '.join(table.columns)} FROM ~{name} WHERE {_by_key(table)} FOR UPDATE"  # noqa: S608
            rows = tx.ask(query, *_key(address))
            if not rows:
                return None
            tx.change(f"DELETE FROM ~{name} WHERE {_by_key(table)}", *_key(address))  # noqa: S608
            return rows[0]

        row = self._database.run(change, JournalCorrupt, record)
        if row is None:
            raise KeyError(record)
        self._removed[name, address] = row

    def close(self) -> None:
        self._database.close()


def _by_key(table: _Table) -> str:
    return " AND ".join(f"{column} = ?" for column in table.key)


def _shown(value: Value) -> str:
    """A value of a key as a part of a record's name."""
    return f"x{value.hex()}" if isinstance(value, bytes) else str(value)


def _key(address: str) -> tuple[Value, ...]:
    return tuple(bytes.fromhex(part[1:]) if part.startswith("x") else int(part) for part in address.split("."))


def _parts(record: str) -> tuple[str, str, str]:
    name, _, rest = record.partition("/")
    address, _, column = rest.partition("/")
    table = _TABLES.get(name)
    if table is None or column not in table.cells:
        raise KeyError(record)
    try:
        if len(_key(address)) != len(table.key):
            raise KeyError(record)
    except ValueError as error:
        raise KeyError(record) from error
    return name, address, column
