"""State slots as they are stored: one sealed record a slot, moved by conditional commits (STATE-1 to STATE-5).

The record is the header line of `codec.seal`, then one line with key, version and nonce, then the value byte for byte,
or for a list the items of its inline tail. A list's item is `<length>:<bytes>` and a line break, so that any bytes come
back as they were and JSON stays readable; older items are in segments of the same form, found through `index_tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.atomic_record import sealed
from statebook.codec import unseal
from statebook.contention import Contention
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError, StateCorrupt
from statebook.index_tree import Levels, Shape, TreeReader, blob_name, grown, refer
from statebook.keys import StateKey
from statebook.model import SlotKind
from statebook.plan import Done

T = TypeVar("T")

_RECORD_KINDS: Final = {SlotKind.DOCUMENT: "state-document", SlotKind.LIST: "state-list"}
_ROOTS: Final = {SlotKind.DOCUMENT: "d/", SlotKind.LIST: "l/"}
_SEGMENT_BYTES: Final = 1024 * 1024
_LENGTH_DIGITS_MAX: Final = 20


def slot_root(kind: SlotKind) -> str:
    """The scopes of one kind of slots start with this."""
    return _ROOTS[kind]


class StoredSlot(msgspec.Struct, frozen=True):
    """A slot as it is stored; a tombstone too.

    Attributes:
        key: The full key, compared on read.
        version: Grows by one with each save; a tombstone keeps it, so that none is issued twice (STATE-2).
        generation: Grows by one with each write, deletes included.
        nonce: Fresh with each write (ATOM-2).
        deleted: Whether it is a tombstone.
        body: The value, or the framed items of a list's tail.
        length: How many items a list has.
        bytes: How many bytes a list's items have.
        levels: The index of a list's older items.
    """

    key: StateKey
    version: int
    generation: int
    nonce: str
    deleted: bool = False
    body: bytes = b""
    length: int = 0
    bytes: int = 0
    levels: Levels = ()


class _WireSlot(msgspec.Struct, frozen=True, omit_defaults=True):
    key: StateKey
    version: int
    generation: int
    nonce: str
    deleted: bool = False
    length: int = 0
    bytes: int = 0
    levels: Levels = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_WireSlot)


class SlotWrite(msgspec.Struct, Generic[T], frozen=True):
    """Commit this record with these blobs, conditional on the one that was judged; then answer."""

    record: StoredSlot
    answer: T
    blobs: Mapping[str, bytes] | None = None


class SlotRecords:
    """Reads and moves the records of slots."""

    def __init__(self, storage: AtomicJournalStorage, contention: Contention) -> None:
        """Work over a storage.

        Args:
            storage: The storage.
            contention: Bounds lost attempts.
        """
        self._storage = storage
        self._contention = contention

    def read(self, kind: SlotKind, slot: StateKey) -> tuple[StoredSlot | None, str | None]:
        """Read a slot's record and its token, from one commit (STATE-3).

        Raises:
            StateCorrupt: It is damaged or another slot's.
            UnsupportedFormat: It is of another format version.
        """
        found = self._decode(kind, slot_root(kind) + slot.name)
        if found[0] is not None and found[0].key != slot:
            raise StateCorrupt("the record belongs to another slot", what="key", expected=slot.name, key=slot.name)
        return found

    def read_scope(self, kind: SlotKind, scope: str) -> StoredSlot | None:
        """Read the record of a listed scope; its key must have that name."""
        return self._decode(kind, scope)[0]

    def _decode(self, kind: SlotKind, scope: str) -> tuple[StoredSlot | None, str | None]:
        record = self._storage.read_head(scope)
        if record is None:
            return None, None
        name = scope.removeprefix(slot_root(kind))
        line, _, body = unseal(_RECORD_KINDS[kind], record.data, StateCorrupt, name).partition(b"\n")
        try:
            wire = _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise StateCorrupt("the record cannot be read", what=kind.value, key=name) from error
        if wire.key.name != name:
            raise StateCorrupt(
                "the record belongs to another slot", what="key", expected=name, found=wire.key.name, key=name
            )
        stored = StoredSlot(
            wire.key,
            wire.version,
            wire.generation,
            wire.nonce,
            wire.deleted,
            body,
            wire.length,
            wire.bytes,
            wire.levels,
        )
        return stored, record.token

    def move(self, kind: SlotKind, slot: StateKey, judge: Callable[[StoredSlot | None], SlotWrite[T] | Done[T]]) -> T:
        """Judge the record and commit what is decided, until it is decided.

        Guarantees STATE-4: of racing commits on one record one succeeds. ERR-2: a commit of unknown outcome is certain
        again where the record carries its nonce, or its generation under another nonce.

        Args:
            kind: The kind.
            slot: The slot.
            judge: Decides on a record, a tombstone too, or raises the conflict.

        Returns:
            The answer.

        Raises:
            BackendUnavailable: Somebody else was first for longer than patience lasts; nothing was applied.
            OutcomeUnknown: Perhaps applied.
            StatebookError: What `judge` raises.
        """
        for _ in self._contention.attempts():
            current, token = self.read(kind, slot)
            decision = judge(current)
            if isinstance(decision, Done):
                return decision.answer
            try:
                if self._commit(kind, slot, token, decision):
                    return decision.answer
            except OutcomeUnknown as error:
                now = self._reread(kind, slot, error)
                if now is not None and now.nonce == decision.record.nonce:
                    return decision.answer
                if now is None or now.generation != decision.record.generation:
                    raise
        raise BackendUnavailable(
            "too much contention: every attempt met a newer version; try again later", key=slot.name
        )

    def _commit(self, kind: SlotKind, slot: StateKey, token: str | None, write: SlotWrite[T]) -> bool:
        record = write.record
        line = _encoder.encode(
            _WireSlot(
                record.key,
                record.version,
                record.generation,
                record.nonce,
                record.deleted,
                record.length,
                record.bytes,
                record.levels,
            )
        )
        data = sealed(_RECORD_KINDS[kind], b"".join([line, b"\n", record.body]))
        committed = self._storage.commit(slot_root(kind) + slot.name, token, data, write.blobs or None)
        return not isinstance(committed, CommitConflict)

    def _reread(self, kind: SlotKind, slot: StateKey, unknown: OutcomeUnknown) -> StoredSlot | None:
        try:
            return self.read(kind, slot)[0]
        except StatebookError:
            raise unknown from unknown.__cause__


# ------------------------------------------------------------------------------------------------------- list items


def frame(item: bytes) -> bytes:
    """One item as it stands in a tail or segment."""
    return b"%d:%b\n" % (len(item), item)


def unframe(data: bytes, count: int, slot: StateKey) -> list[bytes]:
    """The items of a tail or segment.

    Raises:
        StateCorrupt: They are not framed, or not as many as they should be.
    """
    items: list[bytes] = []
    at = 0
    while at < len(data):
        colon = data.find(b":", at, at + _LENGTH_DIGITS_MAX)
        length = data[at:colon]
        if colon < 0 or not length.isdigit():
            raise _unframed(slot, len(items))
        end = colon + 1 + int(length)
        if data[end : end + 1] != b"\n":
            raise _unframed(slot, len(items))
        items.append(data[colon + 1 : end])
        at = end + 1
    if len(items) != count:
        raise StateCorrupt(
            "a list has another number of items than its record says",
            what="list",
            expected=str(count),
            found=str(len(items)),
            key=slot.name,
        )
    return items


def _unframed(slot: StateKey, index: int) -> StateCorrupt:
    return StateCorrupt("a list's items cannot be told apart", what="list", found=f"item {index}", key=slot.name)


def tail_first(record: StoredSlot) -> int:
    """The position of the first item of a list's tail; items count from 1."""
    return record.levels[0][-1].last + 1 if record.levels else 1


def with_items(
    record: StoredSlot, items: Iterable[bytes], new_nonce: Callable[[], str], shape: Shape
) -> tuple[StoredSlot, dict[str, bytes]]:
    """Put items behind a list's others: into the tail, or with it into segments where it is full (STATE-7, HEAD-5).

    Args:
        record: The new record, without these items.
        items: The items.
        new_nonce: Fresh randomness.
        shape: The bounds.

    Returns:
        The record, and the blobs to write with it.
    """
    frames = [frame(item) for item in items]
    added = sum([len(item) for item in frames])
    length = record.length + len(frames)
    if len(record.body) + added <= shape.tail_bytes_max:
        return msgspec.structs.replace(record, length=length, body=b"".join([record.body, *frames])), {}

    def new_name() -> str:
        return blob_name(record.generation - 1, new_nonce())

    levels = record.levels
    blobs: dict[str, bytes] = {}
    first = tail_first(record)
    chunk: list[bytes] = [record.body] if record.body else []
    count = record.length + 1 - first
    size = len(record.body)
    for index, item in enumerate(frames, 1):
        chunk.append(item)
        count += 1
        size += len(item)
        if size >= _SEGMENT_BYTES or index == len(frames):
            segment = b"".join(chunk)
            reference = refer(first, first + count - 1, new_name(), segment)
            levels, folded = grown(levels, reference, shape, new_name)
            blobs |= folded
            blobs[reference.name] = segment
            first, chunk, count, size = first + count, [], 0, 0
    return msgspec.structs.replace(record, length=length, body=b"", levels=levels), blobs


def list_items(storage: AtomicJournalStorage, record: StoredSlot) -> tuple[bytes, ...]:
    """All items of a list. May raise `BlobMissing`.

    Raises:
        StateCorrupt: A segment is damaged.
    """
    slot = record.key
    tree = TreeReader(storage, slot_root(SlotKind.LIST) + slot.name, StateCorrupt, slot.name)
    items: list[bytes] = []
    for reference in tree.segments(record.levels, 1):
        if reference.first != len(items) + 1:
            raise _unframed(slot, len(items))
        items += unframe(tree.fetch(reference), reference.last - reference.first + 1, slot)
    items += unframe(record.body, record.length + 1 - tail_first(record), slot)
    if len(items) != record.length:
        raise _unframed(slot, len(items))
    return tuple(items)
