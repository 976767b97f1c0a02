"""Cursor records as rows (CURSOR-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from statebook.codec import digest
from statebook.errors import JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import FORMAT_VERSION
from statebook.records import CursorState
from statebook_backends.mysql.sql import Row

if TYPE_CHECKING:
    from statebook_backends.mysql.transactions import Transaction

_ONE: Final = (
    "SELECT exporter, journal_id, acked_seq, epoch, nonce, version, seal FROM ~cursor WHERE jid = ? AND exporter = ?"
)
_LOCKED: Final = _ONE + " FOR UPDATE"
_ALL: Final = (
    "SELECT exporter, journal_id, acked_seq, epoch, nonce, version, seal FROM ~cursor WHERE jid = ? ORDER BY exporter"
)
_INSERT: Final = (
    "INSERT INTO ~cursor (jid, exporter, journal_id, acked_seq, epoch, nonce, version, seal) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE ~cursor SET journal_id = ?, acked_seq = ?, epoch = ?, nonce = ?, version = ?, seal = ? "
    "WHERE jid = ? AND exporter = ?"
)
_CursorRow: TypeAlias = "tuple[bytes, str, int, int, str, int, str]"


def read_cursor(
    tx: Transaction, jid: int, key: ThreadKey, exporter: str, *, locked: bool = False
) -> CursorState | None:
    """Read and verify a cursor record.

    Args:
        tx: The transaction.
        jid: The journal's row.
        key: The thread.
        exporter: The exporter.
        locked: Whether nobody else may write it until the transaction ends.

    Returns:
        The record, or None.

    Raises:
        JournalCorrupt: It does not match its seal (FORMAT-1).
    """
    rows = tx.ask(_LOCKED if locked else _ONE, jid, exporter.encode())
    return _verified(jid, key, rows[0]) if rows else None


def read_cursors(tx: Transaction, jid: int, key: ThreadKey) -> tuple[CursorState, ...]:
    """Read and verify all cursor records of a thread.

    Raises:
        JournalCorrupt: One does not match its seal (FORMAT-1).
    """
    return tuple([_verified(jid, key, row) for row in tx.ask(_ALL, jid)])


def write_cursor(tx: Transaction, jid: int, before: CursorState | None, state: CursorState) -> None:
    """Write a cursor record that was decided in this transaction.

    Args:
        tx: The transaction.
        jid: The journal's row.
        before: The record that was read, or None.
        state: The new record.
    """
    exporter = state.exporter.encode()
    seal = _seal(jid, state)
    changing = (state.journal_id, state.acked_seq, state.epoch, state.nonce, state.version, seal)
    if before is None:
        tx.change(_INSERT, jid, exporter, *changing)
    else:
        tx.change(_UPDATE, *changing, jid, exporter)


def _verified(jid: int, key: ThreadKey, row: Row) -> CursorState:
    exporter, journal_id, acked_seq, epoch, nonce, version, stored = cast("_CursorRow", row)
    state = CursorState(key, exporter.decode(errors="replace"), journal_id, acked_seq, epoch, nonce, version)
    seal = _seal(jid, state)
    if seal != stored:
        raise JournalCorrupt(
            f"the cursor of exporter {state.exporter!r} is damaged or was changed by hand",
            what="cursor",
            expected=stored,
            found=seal,
            key=key.name,
            backend="mysql",
        )
    return state


def _seal(jid: int, state: CursorState) -> str:
    fields = (state.exporter, state.journal_id, state.acked_seq, state.epoch, state.nonce, state.version)
    return digest(msgspec.json.encode((FORMAT_VERSION, jid, *msgspec.structs.astuple(state.key), *fields)))
