"""Slots of agent state as rows: reading with verification, writing with a seal, and the chunks of lists (STATE)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.codec import digest
from statebook.errors import StateCorrupt, UnsupportedFormat
from statebook.keys import SessionKey, StateKey
from statebook.model import FORMAT_VERSION, SlotKind

if TYPE_CHECKING:
    from sqlite3 import Cursor

CHUNKS_START: Final = "0" * 64
"""The running digest of an empty list."""

_SELECT: Final = (
    "SELECT sid, user_id, session_id, key, format, version, live, length, bytes, digest, seal, kind, value FROM slot "
    "WHERE namespace = ? AND kind = ? AND name = ?"
)
_WRITE: Final = (
    "INSERT INTO slot (namespace, kind, name, session, sid, user_id, session_id, key, format, version, live, length, "
    "bytes, digest, seal, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (namespace, kind, name) DO UPDATE SET version = excluded.version, live = excluded.live, "
    "length = excluded.length, bytes = excluded.bytes, digest = excluded.digest, seal = excluded.seal, "
    "value = excluded.value"
)
_TAKEN: Final = "SELECT 1 FROM slot WHERE sid = ?"
_ORPHANS: Final = (
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM chunk WHERE sid = ?1) AND NOT EXISTS (SELECT 1 FROM slot WHERE sid = ?1)"
)
_CHUNKS: Final = "SELECT first, sizes, body FROM chunk WHERE sid = ? ORDER BY first"
_ADD_CHUNK: Final = "INSERT INTO chunk (sid, first, sizes, body) VALUES (?, ?, ?, ?)"
_DELETE_CHUNKS: Final = "DELETE FROM chunk WHERE sid = ?"

_sizes_decoder = msgspec.json.Decoder(list[int])
_encode = msgspec.json.Encoder().encode


class SlotRow(msgspec.Struct, frozen=True):
    """What a row says of a slot.

    Attributes:
        sid: The row.
        kind: Document or list.
        slot: The slot.
        version: The last version that was issued.
        live: False for a tombstone.
        length: The items of a list.
        size: The bytes of the value or of all items.
        digest: The digest of the document, or the running digest of the list's chunks.
        value: The document, where it was asked for.
    """

    sid: int
    kind: SlotKind
    slot: StateKey
    version: int
    live: bool
    length: int
    size: int
    digest: str
    value: bytes | None = None


def read_slot(cursor: Cursor, namespace: str, kind: SlotKind, slot: StateKey) -> SlotRow | None:
    """Read and verify a slot, a tombstone too; of a list without its items.

    Args:
        cursor: Inside a transaction.
        namespace: The namespace.
        kind: Document or list.
        slot: The slot.

    Returns:
        The slot, or None where there is no row.

    Raises:
        StateCorrupt: The row does not match its seal, its key or its digest (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    name = slot.name
    row = cursor.execute(_SELECT, (namespace, kind.value, name)).fetchone()
    if row is None:
        if cursor.execute(_ORPHANS, (row_number(namespace, kind.value, name),)).fetchone() is not None:
            raise damaged(name, "the slot of the items that are there", "none")
        return None
    found = verified(namespace, row)
    if found.slot != slot:
        raise damaged(name, repr(msgspec.structs.astuple(slot)), repr(msgspec.structs.astuple(found.slot)))
    if found.live and kind is SlotKind.DOCUMENT:
        value = row[12]
        there = "no value" if value is None else digest(value)
        if there != found.digest:
            raise damaged(name, found.digest, there)
        return msgspec.structs.replace(found, value=value)
    return found


def verified(namespace: str, row: Sequence[object]) -> SlotRow:
    """Verify a row against its seal: its columns from `sid` to `kind`, in the order of every query here.

    Raises:
        StateCorrupt: They do not match (FORMAT-1).
        UnsupportedFormat: The row is of another format version.
    """
    sid, user_id, session_id, key, written, version, live, length, size, stored_digest, seal, kind = row[:12]
    about = f"{session_id}/{key}"
    if written != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the slot has format {written}; this release reads format {FORMAT_VERSION}. Use a release that knows it",
            what="slot",
            expected=str(FORMAT_VERSION),
            found=repr(written),
            key=about,
            backend="sqlite",
        )
    fields = (namespace, kind, user_id, session_id, key, written, sid, version, live, length, size, stored_digest)
    found = digest(_encode(fields))
    if found != seal:
        raise damaged(about, str(seal), found)
    slot = msgspec.convert((user_id, session_id, key), tuple[str | None, str, str])
    return SlotRow(
        msgspec.convert(sid, int),
        SlotKind(kind),
        StateKey(*slot),
        msgspec.convert(version, int),
        live == 1,
        msgspec.convert(length, int),
        msgspec.convert(size, int),
        str(stored_digest),
    )


def write_slot(cursor: Cursor, namespace: str, row: SlotRow) -> None:
    """Write a slot that was decided in this transaction."""
    slot, kind, live = row.slot, row.kind.value, int(row.live)
    meta = (row.version, live, row.length, row.size, row.digest)
    ids = (slot.user_id, slot.session_id, slot.key, FORMAT_VERSION)
    seal = digest(_encode((namespace, kind, *ids, row.sid, *meta)))
    session = SessionKey(slot.user_id, slot.session_id).name
    cursor.execute(_WRITE, (namespace, kind, slot.name, session, row.sid, *ids, *meta, seal, row.value))


def row_number(*parts: str) -> int:
    """A positive 63-bit number that stands for some names: where a slot's row was lost, its items are recognised."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8], "big") >> 1


def free_row(cursor: Cursor, namespace: str, kind: SlotKind, slot: StateKey) -> int:
    """The row number of a new slot; the next one where a digest of 63 bits is met twice."""
    sid = row_number(namespace, kind.value, slot.name)
    while cursor.execute(_TAKEN, (sid,)).fetchone() is not None:
        sid += 1
    return sid


def damaged(key: str, expected: str, found: str) -> StateCorrupt:
    """The error for a slot that is not as it was written (FORMAT-1)."""
    return StateCorrupt(
        "the slot is damaged or was changed by hand; nothing is written to it",
        what="slot",
        expected=expected,
        found=found,
        key=key,
        backend="sqlite",
    )


# --------------------------------------------------------------------------------------------------------------- chunks


def read_items(cursor: Cursor, row: SlotRow) -> tuple[bytes, ...]:
    """Read and verify the items of a list (STATE-7).

    Raises:
        StateCorrupt: A chunk is missing or damaged (FORMAT-1).
    """
    items: list[bytes] = []
    running = CHUNKS_START
    key = row.slot.name
    for first, sizes, body in cursor.execute(_CHUNKS, (row.sid,)):
        running = _chunk_next(running, first, sizes, body)
        if first != len(items):
            raise damaged(key, f"items from {len(items)} on", f"items from {first} on")
        try:
            lengths = _sizes_decoder.decode(sizes)
        except msgspec.DecodeError as error:
            raise damaged(key, "the sizes of items", repr(sizes[:40])) from error
        place = 0
        for length in lengths:
            items.append(body[place : place + length])
            place += length + 1
    if (running, len(items)) != (row.digest, row.length):
        raise damaged(key, f"{row.length} items, {row.digest}", f"{len(items)} items, {running}")
    return tuple(items)


def add_chunk(cursor: Cursor, sid: int, running: str, first: int, items: Sequence[bytes]) -> str:
    """Store items as one chunk, none where there are none.

    Returns:
        The running digest behind it.
    """
    if not items:
        return running
    sizes = _encode([len(item) for item in items]).decode("ascii")
    body = b"\n".join(items)
    cursor.execute(_ADD_CHUNK, (sid, first, sizes, body))
    return _chunk_next(running, first, sizes, body)


def delete_chunks(cursor: Cursor, sid: int) -> None:
    """Remove the items of a list."""
    cursor.execute(_DELETE_CHUNKS, (sid,))


def _chunk_next(running: str, first: int, sizes: str, body: bytes) -> str:
    hashed = hashlib.sha256(f"{running}:{first}:{sizes}:".encode())
    hashed.update(body)
    return hashed.hexdigest()
