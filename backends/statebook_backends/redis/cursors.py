"""Cursor records: sealed, one an exporter, in one hash beside the head (CURSOR-1)."""

from __future__ import annotations

import msgspec

from statebook.codec import seal, unseal
from statebook.errors import JournalCorrupt
from statebook.keys import ThreadKey, encode_id
from statebook.records import CursorState
from statebook_backends.redis.layout import ThreadKeys

KIND = "export-cursor"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cursor as it is stored."""

    place: str
    user_id: str | None
    agent_id: str
    session_id: str
    thread_id: str
    exporter: str
    journal_id: str
    acked_seq: int
    epoch: int
    nonce: str
    version: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Record).decode


def field_of(exporter: str) -> bytes:
    """The field of an exporter's record."""
    return encode_id(exporter).encode("ascii")


def pack_cursor(keys: ThreadKeys, state: CursorState) -> bytes:
    """A cursor as it is stored."""
    key = state.key
    return seal(
        KIND,
        _encode(
            _Record(
                keys.cursors.decode("ascii"),
                key.user_id,
                key.agent_id,
                key.session_id,
                key.thread_id,
                state.exporter,
                state.journal_id,
                state.acked_seq,
                state.epoch,
                state.nonce,
                state.version,
            )
        ),
    )


def cursor_from(keys: ThreadKeys, key: ThreadKey, field: bytes, record: bytes) -> CursorState:
    """Verify a cursor's record.

    Args:
        keys: The keys of the thread.
        key: The thread.
        field: The exporter's field.
        record: What is stored.

    Returns:
        The cursor.

    Raises:
        JournalCorrupt: It is damaged, or stands in another's place (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    body = unseal(KIND, record, JournalCorrupt, keys.name)
    try:
        found = _decode(body)
    except msgspec.DecodeError as error:
        raise JournalCorrupt("a cursor's record cannot be read", what="cursor", key=keys.name) from error
    there = ThreadKey(found.user_id, found.agent_id, found.session_id, found.thread_id)
    if there != key or field_of(found.exporter) != field or found.place != keys.cursors.decode("ascii"):
        raise JournalCorrupt(
            "a cursor's record stands in another's place",
            what="cursor",
            expected=f"{keys.name} {field.decode(errors='replace')}",
            found=f"{there.name} {found.exporter}",
            key=keys.name,
        )
    return CursorState(key, found.exporter, found.journal_id, found.acked_seq, found.epoch, found.nonce, found.version)


def cursors_from(keys: ThreadKeys, key: ThreadKey, records: dict[bytes, bytes]) -> tuple[CursorState, ...]:
    """Verify all cursors of a thread.

    Raises:
        JournalCorrupt: One is damaged (FORMAT-1).
    """
    return tuple([cursor_from(keys, key, field, records[field]) for field in sorted(records)])
