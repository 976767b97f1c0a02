"""Cursor records as rows (CURSOR-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.codec import digest
from statebook.errors import JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import FORMAT_VERSION
from statebook.records import CursorState

if TYPE_CHECKING:
    from sqlite3 import Cursor

_ONE: Final = (
    "SELECT exporter, journal_id, acked_seq, epoch, nonce, version, seal FROM cursor WHERE jid = ? AND exporter = ?"
)
_ALL: Final = (
    "SELECT exporter, journal_id, acked_seq, epoch, nonce, version, seal FROM cursor WHERE jid = ? ORDER BY exporter"
)
_WRITE: Final = (
    "INSERT INTO cursor (jid, exporter, journal_id, acked_seq, epoch, nonce, version, seal) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (jid, exporter) DO UPDATE SET journal_id = excluded.journal_id, acked_seq = excluded.acked_seq, "
    "epoch = excluded.epoch, nonce = excluded.nonce, version = excluded.version, seal = excluded.seal"
)


def read_cursor(cursor: Cursor, jid: int, key: ThreadKey, exporter: str) -> CursorState | None:
    """Read and verify a cursor record.

    Args:
        cursor: Inside a transaction.
        jid: The journal's row.
        key: The thread.
        exporter: The exporter.

    Returns:
        The record, or None.

    Raises:
        JournalCorrupt: It does not match its seal (FORMAT-1).
    """
    row = cursor.execute(_ONE, (jid, exporter)).fetchone()
    return None if row is None else _verified(jid, key, row)


def read_cursors(cursor: Cursor, jid: int, key: ThreadKey) -> Iterator[CursorState]:
    """Read and verify all cursor records of a thread.

    Raises:
        JournalCorrupt: One does not match its seal (FORMAT-1).
    """
    for row in cursor.execute(_ALL, (jid,)):
        yield _verified(jid, key, row)


def write_cursor(cursor: Cursor, jid: int, state: CursorState) -> None:
    """Write a cursor record that was decided in this transaction."""
    fields = (state.exporter, state.journal_id, state.acked_seq, state.epoch, state.nonce, state.version)
    cursor.execute(_WRITE, (jid, *fields, _seal(jid, state.key, fields)))


def _verified(jid: int, key: ThreadKey, row: tuple[str, str, int, int, str, int, str]) -> CursorState:
    seal = _seal(jid, key, row[:6])
    if seal != row[6]:
        raise JournalCorrupt(
            f"the cursor of exporter {row[0]!r} is damaged or was changed by hand",
            what="cursor",
            expected=row[6],
            found=seal,
            key=key.name,
            backend="sqlite",
        )
    return CursorState(key, *row[:6])


def _seal(jid: int, key: ThreadKey, fields: tuple[str, str, int, int, str, int]) -> str:
    return digest(msgspec.json.encode((FORMAT_VERSION, jid, *msgspec.structs.astuple(key), *fields)))
