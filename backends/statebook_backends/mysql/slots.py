"""Slots of agent state as rows: reading with verification, writing with a seal, and the chunks of lists (STATE)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from statebook.codec import digest
from statebook.errors import StateCorrupt, UnsupportedFormat
from statebook.keys import SessionKey, StateKey
from statebook.model import FORMAT_VERSION, SlotKind
from statebook_backends.mysql.sql import Row

if TYPE_CHECKING:
    from statebook_backends.mysql.transactions import Transaction

CHUNKS_START: Final = "0" * 64
"""The running digest of an empty list."""

COLUMNS: Final = "sid, user_id, session_id, slot_key, format, version, live, items, size, digest, seal, kind"
"""What `verified` takes, in its order."""

_JOIN: Final = "namespace = ? AND kind = ? AND name = ?"
SELECT_SLOT: Final = f"SELECT {COLUMNS}, value FROM ~slot WHERE {_JOIN}"  # noqa: S608
LOCK_SLOT: Final = f"SELECT {COLUMNS}, SHA2(value, 256) FROM ~slot WHERE {_JOIN} FOR UPDATE"  # noqa: S608
"""With the digest of the value, so that the value need not travel. Nobody else writes or locks the slot until the
transaction ends; a row that is not there is not locked."""
_SID: Final = f"(SELECT sid FROM ~slot WHERE {_JOIN})"  # noqa: S608
SELECT_CHUNKS: Final = f"SELECT first_item, sizes, body FROM ~chunk WHERE sid = {_SID} ORDER BY first_item"  # noqa: S608
HAS_ORPHANS: Final = (
    "SELECT EXISTS (SELECT 1 FROM ~chunk WHERE sid = ?) AND NOT EXISTS (SELECT 1 FROM ~slot WHERE sid = ?)"
)
"""Whether there are items without their slot, in one snapshot."""
_INSERT: Final = (
    "INSERT INTO ~slot (namespace, kind, name, session, sid, user_id, session_id, slot_key, format, version, live, "
    "items, size, digest, seal, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE ~slot SET version = ?, live = ?, items = ?, size = ?, digest = ?, seal = ?, value = ? WHERE sid = ?"
)
_TAKEN: Final = "SELECT 1 FROM ~slot WHERE sid = ?"
_ADD_CHUNK: Final = "INSERT INTO ~chunk (sid, first_item, sizes, body) VALUES (?, ?, ?, ?)"
_DELETE_CHUNKS: Final = "DELETE FROM ~chunk WHERE sid = ? LIMIT ?"

_PLACE_OF_VALUE: Final = 12
_CHUNK_BYTES: Final = 256 * 1_024
_CHUNK_ITEMS: Final = 10_000

_SlotColumns: TypeAlias = "tuple[int, str | None, str, str, int, int, int, int, int, str, str, str]"
_ChunkRow: TypeAlias = "tuple[int, str, bytes]"

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


def slot_of(namespace: bytes, row: Row, slot: StateKey) -> SlotRow:
    """Verify a row that was asked for by a slot's name.

    Args:
        namespace: The namespace.
        row: The row of `SELECT_SLOT` or `LOCK_SLOT`.
        slot: The slot that was asked for.

    Returns:
        The slot, a tombstone too.

    Raises:
        StateCorrupt: The row does not match its seal, its key or its digest (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    found = verified(namespace, row)
    if found.slot != slot:
        raise damaged(slot.name, repr(msgspec.structs.astuple(slot)), repr(msgspec.structs.astuple(found.slot)))
    if not found.live or found.kind is SlotKind.LIST:
        return found
    # The value where it was selected, else its digest.
    last = row[_PLACE_OF_VALUE]
    there = digest(last) if isinstance(last, bytes) else str(last)
    if there != found.digest:
        raise damaged(slot.name, found.digest, there)
    return msgspec.structs.replace(found, value=last) if isinstance(last, bytes) else found


def locked_slot(tx: Transaction, namespace: bytes, kind: SlotKind, slot: StateKey) -> SlotRow:
    """Read and verify a slot in a transaction, so that nobody else writes it until that ends.

    Args:
        tx: The transaction.
        namespace: The namespace.
        kind: Document or list.
        slot: The slot.

    Returns:
        The slot; a tombstone of version 0, with a free number, where there is no row.

    Raises:
        StateCorrupt: The row does not match, or was lost (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    rows = tx.ask(LOCK_SLOT, namespace, kind.value, slot.name.encode())
    if rows:
        return slot_of(namespace, rows[0], slot)
    sid = row_number(namespace, kind, slot)
    if tx.ask(HAS_ORPHANS, sid, sid)[0][0] == 1:
        raise lost_slot(slot)
    while tx.ask(_TAKEN, sid):
        sid += 1
    return SlotRow(sid, kind, slot, 0, False, 0, 0, "")


def verified(namespace: bytes, row: Row) -> SlotRow:
    """Verify a row against its seal.

    Args:
        namespace: The namespace.
        row: Its first columns are `COLUMNS`.

    Returns:
        The slot, without its value.

    Raises:
        StateCorrupt: They do not match (FORMAT-1).
        UnsupportedFormat: The row is of another format version.
    """
    columns = cast("_SlotColumns", row[:_PLACE_OF_VALUE])
    sid, user_id, session_id, key, written, version, live, items, size, stored_digest, seal, kind = columns
    about = f"{session_id}/{key}"
    if written != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the slot has format {written}; this release reads format {FORMAT_VERSION}. Use a release that knows it",
            what="slot",
            expected=str(FORMAT_VERSION),
            found=repr(written),
            key=about,
            backend="mysql",
        )
    found = _seal(namespace, kind, user_id, session_id, key, sid, version, live, items, size, stored_digest)
    if found != seal:
        raise damaged(about, seal, found)
    slot = StateKey(user_id, session_id, key)
    return SlotRow(sid, SlotKind(kind), slot, version, live == 1, items, size, stored_digest)


def _seal(namespace: bytes, kind: str, user_id: str | None, *rest: str | int) -> str:
    return digest(_encode((namespace.decode(), kind, user_id, FORMAT_VERSION, *rest)))


def write_slot(tx: Transaction, namespace: bytes, before: SlotRow, row: SlotRow) -> None:
    """Write a slot that was decided in this transaction.

    Args:
        tx: The transaction.
        namespace: The namespace.
        before: What `locked_slot` gave.
        row: The new slot.
    """
    slot, kind, live = row.slot, row.kind.value, int(row.live)
    ids = (slot.user_id, slot.session_id, slot.key)
    meta = (row.version, live, row.length, row.size, row.digest)
    seal = _seal(namespace, kind, *ids, row.sid, *meta)
    if before.version > 0:
        tx.change(_UPDATE, *meta, seal, row.value, row.sid)
        return
    session = SessionKey(slot.user_id, slot.session_id).name.encode()
    tx.change(
        _INSERT,
        *(namespace, kind, slot.name.encode(), session, row.sid, *ids, FORMAT_VERSION, *meta, seal),
        row.value,
    )


def row_number(namespace: bytes, kind: SlotKind, slot: StateKey) -> int:
    """A positive 63-bit number that stands for a slot: where its row was lost, its items are recognised."""
    name = b"\0".join((namespace, kind.value.encode(), slot.name.encode()))
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1


def lost_slot(slot: StateKey) -> StateCorrupt:
    """The error for items whose slot was lost."""
    return damaged(slot.name, "the slot of the items that are there", "none")


def damaged(key: str, expected: str, found: str) -> StateCorrupt:
    """The error for a slot that is not as it was written (FORMAT-1)."""
    return StateCorrupt(
        "the slot is damaged or was changed by hand; nothing is written to it",
        what="slot",
        expected=expected,
        found=found,
        key=key,
        backend="mysql",
    )


# --------------------------------------------------------------------------------------------------------------- chunks


def items_of(row: SlotRow, chunks: Iterable[Row]) -> tuple[bytes, ...]:
    """Verify the items of a list (STATE-7).

    Args:
        row: The list.
        chunks: What `SELECT_CHUNKS` gave in the same snapshot.

    Returns:
        The items.

    Raises:
        StateCorrupt: A chunk is missing or damaged (FORMAT-1).
    """
    items: list[bytes] = []
    running = CHUNKS_START
    key = row.slot.name
    for chunk in chunks:
        first, sizes, body = cast("_ChunkRow", chunk)
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


def add_items(tx: Transaction, sid: int, running: str, first: int, items: Sequence[bytes]) -> str:
    """Store items as chunks, each small enough for one request.

    Args:
        tx: The transaction.
        sid: The list.
        running: The running digest before them.
        first: The index of the first one.
        items: The items; none add no chunk.

    Returns:
        The running digest behind them.
    """
    part: list[bytes] = []
    held = 0
    for item in items:
        if part and (held + len(item) > _CHUNK_BYTES or len(part) == _CHUNK_ITEMS):
            running = _add_chunk(tx, sid, running, first, part)
            first += len(part)
            part, held = [], 0
        part.append(item)
        held += len(item)
    return _add_chunk(tx, sid, running, first, part) if part else running


def _add_chunk(tx: Transaction, sid: int, running: str, first: int, items: Sequence[bytes]) -> str:
    sizes = _encode([len(item) for item in items]).decode("ascii")
    body = b"\n".join(items)
    tx.change(_ADD_CHUNK, sid, first, sizes, body)
    return _chunk_next(running, first, sizes, body)


def delete_chunks(tx: Transaction, sid: int) -> None:
    """Remove the items of a list."""
    tx.change_many(_DELETE_CHUNKS, sid)


def _chunk_next(running: str, first: int, sizes: str, body: bytes) -> str:
    hashed = hashlib.sha256(f"{running}:{first}:{sizes}:".encode())
    hashed.update(body)
    return hashed.hexdigest()
