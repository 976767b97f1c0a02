"""A journal's head as it is stored: readable JSON lines under a sealed header (HEAD-1, HEAD-5).

The record is the header line of `codec.seal`, then one line with the head, the index levels and the receipts of the
last 64 batches, then one line a batch of the inline tail. A segment blob holds the same batch lines. A batch line
embeds the batch's body byte for byte. What a commit does not change is kept as it was read, and never encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from statebook.atomic_record import SealedRecord, sealed
from statebook.codec import unseal
from statebook.errors import JournalCorrupt
from statebook.index_tree import SHAPE, Levels, Reference, Shape, blob_name, dropped, grown, refer
from statebook.keys import ThreadKey
from statebook.model import Receipt
from statebook.records import FrozenBatch, HeadState
from statebook.window import WINDOW_BATCHES

HEAD_KIND: Final = "journal-head"


class BatchLine(msgspec.Struct, frozen=True, gc=False):
    """One batch in a tail or a segment.

    Attributes:
        first: The seq of its first event.
        last: The seq of its last event.
        epoch: The epoch that it was committed under.
        digest: The digest of its body, in hex.
        chain: The chain digest behind it, in hex.
        body: The body, byte for byte.
    """

    first: int
    last: int
    epoch: int
    digest: str
    chain: str
    body: msgspec.Raw


class _WireReceipt(msgspec.Struct, frozen=True, gc=False):
    batch_id: str
    first: int
    last: int
    epoch: int
    digest: str


class _WireHead(msgspec.Struct, frozen=True):
    head: HeadState
    trimming: int | None
    levels: msgspec.Raw
    receipts: tuple[msgspec.Raw, ...]


class StoredHead(msgspec.Struct, frozen=True):
    """A decoded head. Tail and receipts stay as the bytes that were stored.

    Attributes:
        state: What the head says.
        levels: The index (HEAD-5).
        levels_raw: The same, encoded.
        receipts: The encoded receipts of the last batches, oldest first.
        tail: The lines of the inline tail, with their line breaks.
        tail_bytes: Their length.
        trimming: The `first_seq` that a trim under way means to set, or None (LIFE-4).
    """

    state: HeadState
    levels: Levels = ()
    levels_raw: bytes = b"[]"
    receipts: tuple[msgspec.Raw, ...] = ()
    tail: tuple[bytes, ...] = ()
    tail_bytes: int = 0
    trimming: int | None = None

    def encode(self) -> SealedRecord:
        """The record to commit."""
        line = _encoder.encode(_WireHead(self.state, self.trimming, msgspec.Raw(self.levels_raw), self.receipts))
        return sealed(HEAD_KIND, b"".join([line, b"\n", *self.tail]))

    def moved(self, state: HeadState) -> StoredHead:
        """The same batches under another state, as claims, releases and barriers write it."""
        return msgspec.structs.replace(self, state=state)

    def receipts_kept(self) -> list[Receipt]:
        """The receipts of the last batches, oldest first."""
        return [
            Receipt(wire.batch_id, self.state.journal_id, wire.first, wire.last, wire.epoch, wire.digest)
            for wire in map(_receipt_decoder.decode, self.receipts)
        ]

    def tail_lines(self) -> list[BatchLine]:
        """The batches of the inline tail."""
        return decode_lines(b"".join(self.tail), "tail", self.state.key)


_encoder = msgspec.json.Encoder()
_head_decoder = msgspec.json.Decoder(_WireHead)
_levels_decoder = msgspec.json.Decoder(tuple[tuple[Reference, ...], ...])
_receipt_decoder = msgspec.json.Decoder(_WireReceipt)
_line_decoder = msgspec.json.Decoder(BatchLine)


def decode_head(record: bytes, key: ThreadKey | None, name: str) -> StoredHead:
    """Decode a stored head.

    Guarantees FORMAT-1: another format, length, digest or key is an error.

    Args:
        record: What was stored.
        key: The key that is asked for, or None where only its name is known.
        name: The name of that key.

    Returns:
        The head.

    Raises:
        UnsupportedFormat: It is of another format version.
        JournalCorrupt: It is damaged, or another key's.
    """
    first, _, rest = unseal(HEAD_KIND, record, JournalCorrupt, name).partition(b"\n")
    try:
        wire = _head_decoder.decode(first)
        levels = _levels_decoder.decode(wire.levels)
    except msgspec.DecodeError as error:
        raise JournalCorrupt("the head cannot be read", what="head", key=name) from error
    found = wire.head.key
    if found.name != name or (key is not None and found != key):
        raise JournalCorrupt(
            "the head belongs to another thread", what="key", expected=name, found=found.name, key=name
        )
    return StoredHead(
        wire.head,
        levels,
        bytes(wire.levels),
        tuple([msgspec.Raw(bytes(receipt)) for receipt in wire.receipts]),
        tuple([line + b"\n" for line in rest.split(b"\n")[:-1]]),
        len(rest),
        wire.trimming,
    )


def decode_lines(data: bytes, what: str, key: ThreadKey) -> list[BatchLine]:
    """Decode batch lines whose digest has been verified, and check that they follow each other (HEAD-2).

    Raises:
        JournalCorrupt: They are no batch lines, or do not follow each other.
    """
    try:
        lines = _line_decoder.decode_lines(data)
    except msgspec.DecodeError as error:
        raise JournalCorrupt(f"a batch line of the {what} cannot be read", what=what, key=key.name) from error
    at = lines[0].first if lines else 0
    for line in lines:
        if line.first != at or line.last < line.first:
            raise gap(key, at, line.first)
        at = line.last + 1
    return lines


def gap(key: ThreadKey, expected: int, found: int) -> JournalCorrupt:
    """The error for batches that do not follow each other."""
    return JournalCorrupt(
        "the batches do not follow each other",
        what="contiguity",
        expected=f"seq {expected}",
        found=f"seq {found}",
        key=key.name,
    )


def extended(
    stored: StoredHead, state: HeadState, batch: FrozenBatch, new_nonce: Callable[[], str], shape: Shape = SHAPE
) -> tuple[StoredHead, dict[str, bytes]]:
    """Take up a batch: into the tail, or with the whole tail into a segment where it is full (HEAD-5, HEAD-6).

    Args:
        stored: The head that was judged.
        state: What `plan_append` wants committed.
        batch: The batch.
        new_nonce: Fresh randomness for blob names.
        shape: The bounds.

    Returns:
        The new head, and the blobs to write with it; none where the batch fits the tail.
    """
    first = state.last_seq - len(batch.event_ids) + 1
    epoch, chain = state.epoch, state.chain
    line = (
        _encoder.encode(BatchLine(first, state.last_seq, epoch, batch.digest, chain, msgspec.Raw(batch.body))) + b"\n"
    )
    receipt = msgspec.Raw(_encoder.encode(_WireReceipt(batch.batch_id, first, state.last_seq, epoch, batch.digest)))
    receipts = (*stored.receipts[-WINDOW_BATCHES + 1 :], receipt)
    size = stored.tail_bytes + len(line)
    if size <= shape.tail_bytes(len(line)):
        head = StoredHead(
            state, stored.levels, stored.levels_raw, receipts, (*stored.tail, line), size, stored.trimming
        )
        return head, {}

    def new_name() -> str:
        return blob_name(stored.state.generation, new_nonce())

    segment = b"".join([*stored.tail, line])
    start = _line_decoder.decode(stored.tail[0]).first if stored.tail else first
    reference = refer(start, state.last_seq, new_name(), segment)
    levels, blobs = grown(stored.levels, reference, shape, new_name)
    blobs[reference.name] = segment
    return StoredHead(state, levels, _encoder.encode(levels), receipts, (), 0, stored.trimming), blobs


def shortened(stored: StoredHead, state: HeadState) -> StoredHead:
    """Drop what lies wholly before the state's `first_seq` (LIFE-2); receipts stay.

    Args:
        stored: The head that was judged.
        state: What `plan_trim` wants committed.

    Returns:
        The new head. The blobs that it no longer refers to are the collector's.
    """
    levels = dropped(stored.levels, state.first_seq)
    tail = tuple([line for line in stored.tail if _line_decoder.decode(line).last >= state.first_seq])
    return StoredHead(state, levels, _encoder.encode(levels), stored.receipts, tail, sum(map(len, tail)), trimming=None)


def tail_from(stored: StoredHead, low: int) -> Iterator[BatchLine]:
    """The batches of the tail that end at a seq or behind it, ascending."""
    for line in stored.tail_lines():
        if line.last >= low:
            yield line
