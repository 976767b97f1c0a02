"""Batches as stream entries: packing, verification, the window of the newest ones, and pages of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from statebook.codec import (
    CHAIN_START,
    chain_next,
    decode_event_ids,
    decode_wanted,
    digest,
    seal,
    unseal,
)
from statebook.errors import JournalCorrupt
from statebook.model import Receipt, RecordedEvent
from statebook.records import FrozenBatch, HeadState
from statebook.window import WINDOW_BATCHES, Window
from statebook_backends.redis.errors import Reply

STUB_KIND: Final = "batch-stub"
"""The kind of the records that keep the event ids of trimmed batches."""


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside a body.

    Attributes:
        first_seq: The seq of its first event.
        batch_id: The batch.
        epoch: The epoch that it was committed under.
        digest: The digest of its body.
        chain: The chain digest behind it.
    """

    first_seq: int
    batch_id: str
    epoch: int
    digest: str
    chain: str


_encode = msgspec.json.Encoder().encode
_decode_meta = msgspec.json.Decoder(Meta).decode
_decode_ids = msgspec.json.Decoder(tuple[str, ...]).decode


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """One entry.

    Attributes:
        last_seq: The seq of its last event: the entry's id.
        meta: What stands beside its body.
        body: Its body, or the sealed event ids of a batch that was trimmed away.
        is_stub: Whether it was.
    """

    last_seq: int
    meta: Meta
    body: bytes
    is_stub: bool

    def receipt(self, journal_id: str) -> Receipt:
        """Its receipt."""
        meta = self.meta
        return Receipt(meta.batch_id, journal_id, meta.first_seq, self.last_seq, meta.epoch, meta.digest)

    def event_ids(self, head: HeadState) -> tuple[str, ...]:
        """Verify the entry by itself, and give its event ids.

        Raises:
            JournalCorrupt: It does not match (FORMAT-1).
        """
        meta = self.meta
        if self.is_stub:
            try:
                ids = _decode_ids(unseal(STUB_KIND, self.body, JournalCorrupt, head.key.name))
            except msgspec.DecodeError as error:
                raise damaged(head, "a stub cannot be read", meta.first_seq, "event ids", "none") from error
            batch_id = meta.batch_id
        else:
            found = digest(self.body)
            if found != meta.digest:
                raise damaged(head, "the body does not match its digest", meta.first_seq, meta.digest, found)
            batch_id, ids = decode_event_ids(self.body)
        if batch_id != meta.batch_id or len(ids) != self.last_seq - meta.first_seq + 1:
            raise damaged(
                head,
                "the body is of another batch",
                meta.first_seq,
                f"{meta.batch_id!r} with {self.last_seq - meta.first_seq + 1} events",
                f"{batch_id!r} with {len(ids)} events",
            )
        return ids

    def chain_behind(self, chain: str) -> str:
        """The chain digest behind it, computed from the one before it."""
        meta = self.meta
        return chain_next(chain, meta.digest, meta.first_seq, self.last_seq, meta.epoch)


def damaged(head: HeadState, what: str, seq: int, expected: str, found: str) -> JournalCorrupt:
    """The error for a batch that is not as it was written (FORMAT-1)."""
    return JournalCorrupt(f"{what} at seq {seq}", what="batch", expected=expected, found=found, key=head.key.name)


def pack_meta(head: HeadState, batch: FrozenBatch) -> bytes:
    """What stands beside the body of a batch that the given, new head has just taken up."""
    first = head.last_seq - len(batch.event_ids) + 1
    return _encode(Meta(first, batch.batch_id, head.epoch, batch.digest, head.chain))


def stub_of(batch: StoredBatch, head: HeadState) -> tuple[bytes, bytes, bytes]:
    """Id, meta and event ids of a batch that is trimmed away but still in the window.

    Raises:
        JournalCorrupt: The batch is damaged; it is not removed.
    """
    return b"%d-0" % batch.last_seq, _encode(batch.meta), seal(STUB_KIND, _encode(batch.event_ids(head)))


# -------------------------------------------------------------------------------------------------------------- entries


def entries_of(head: HeadState, sizes: Reply, text: Reply) -> Iterator[StoredBatch]:
    """The entries in a reply of `read.lua` or `newest.lua`.

    Raises:
        JournalCorrupt: One is no entry of ours (FORMAT-1).
    """
    if not isinstance(sizes, bytes) or not isinstance(text, bytes):
        raise damaged(head, "batches cannot be read", head.last_seq, "entries", "another reply")
    place = 0
    for line in sizes.split(b"\n") if sizes else ():
        words = line.split(b" ")
        middle = place + int(words[1])
        end = middle + int(words[2])
        yield _entry(head, words[0], text[place:middle], text[middle:end], is_stub=len(words) > 3)
        place = end


def entry_of(head: HeadState, entry: Reply) -> StoredBatch:
    """One entry as `XRANGE` gives it.

    Raises:
        JournalCorrupt: It is no entry of ours (FORMAT-1).
    """
    if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], bytes) and isinstance(entry[1], list):
        words = entry[1]
        if len(words) == 4 and words[0] == b"meta" and words[2] in (b"body", b"ids"):
            meta, body = words[1], words[3]
            if isinstance(meta, bytes) and isinstance(body, bytes):
                return _entry(head, entry[0], meta, body, is_stub=words[2] == b"ids")
    raise damaged(head, "an entry cannot be read", head.last_seq, "meta and body", repr(entry)[:80])


def _entry(head: HeadState, name: bytes, meta: bytes, body: bytes, *, is_stub: bool) -> StoredBatch:
    return StoredBatch(*_name_and_meta(head, name, meta), body, is_stub)


def _name_and_meta(head: HeadState, name: bytes, meta: bytes) -> tuple[int, Meta]:
    try:
        if name[-2:] != b"-0":
            raise ValueError(name)
        return int(name[:-2]), _decode_meta(meta)
    except (ValueError, msgspec.MsgspecError) as error:
        raise damaged(head, "an entry cannot be read", head.last_seq, "a batch", repr(name)) from error


# ----------------------------------------------------------------------------------------------- evidence for appends


def window_of(head: HeadState, newest: list[StoredBatch]) -> Window:
    """The window of a head, made of its newest batches, newest first (APPEND-1).

    Raises:
        JournalCorrupt: A batch is missing or damaged, or the chain is broken.
    """
    entries: list[tuple[Receipt, tuple[str, ...]]] = []
    last, chain = head.last_seq, head.chain
    newer: StoredBatch | None = None
    for batch in newest:
        if batch.last_seq != last:
            raise damaged(head, "a batch is missing", last, f"a batch that ends at {last}", f"{batch.last_seq}")
        check_link(head, batch.meta.chain, newer, chain)
        entries.append((batch.receipt(head.journal_id), batch.event_ids(head)))
        last, newer = batch.meta.first_seq - 1, batch
    if len(entries) < WINDOW_BATCHES and last != 0:
        raise damaged(head, "a batch is missing", last, f"a batch that ends at {last}", "none")
    if last == 0:
        check_link(head, CHAIN_START, newer, chain)
    return Window(head.chain, reversed(entries))


def check_link(head: HeadState, chain: str, newer: StoredBatch | None, end: str) -> None:
    """Check that a chain digest leads to the newer batch, or is the end of the chain.

    Raises:
        JournalCorrupt: It does not (HEAD-3).
    """
    found, expected = (chain, end) if newer is None else (newer.chain_behind(chain), newer.meta.chain)
    if found != expected:
        raise JournalCorrupt(
            f"the chain is broken at seq {head.last_seq if newer is None else newer.meta.first_seq}",
            what="chain",
            expected=expected,
            found=found,
            key=head.key.name,
        )


# ---------------------------------------------------------------------------------------------------------------- pages


RawBatch: TypeAlias = tuple[bytes, bytes, bytes]
"""An entry as it came: its id, meta and body."""


def joined(head: HeadState, sizes: Reply, text: Reply) -> Iterator[RawBatch]:
    """The entries in a reply of `read.lua`.

    Raises:
        JournalCorrupt: It is no such reply (FORMAT-1).
    """
    if not isinstance(sizes, bytes) or not isinstance(text, bytes):
        raise damaged(head, "batches cannot be read", head.last_seq, "entries", "another reply")
    place = 0
    for line in sizes.split(b"\n") if sizes else ():
        name, meta_size, body_size = line.split(b" ")
        middle = place + int(meta_size)
        end = middle + int(body_size)
        yield name, text[place:middle], text[middle:end]
        place = end


def ranged(head: HeadState, entries: list[Reply]) -> Iterator[RawBatch]:
    """The entries in a reply of `XRANGE`.

    Raises:
        JournalCorrupt: One is no entry of ours (FORMAT-1).
    """
    for entry in entries:
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], bytes) and isinstance(entry[1], list):
            words = entry[1]
            if len(words) == 4 and words[0] == b"meta" and words[2] == b"body":
                meta, body = words[1], words[3]
                if isinstance(meta, bytes) and isinstance(body, bytes):
                    yield entry[0], meta, body
                    continue
        raise damaged(head, "an entry cannot be read", head.last_seq, "meta and body", repr(entry)[:80])


def add_events(
    head: HeadState, batches: Iterable[RawBatch], seq: int, limit: int, last: int, events: list[RecordedEvent]
) -> int:
    """Verify batches, and add their events to a page (READ-1, READ-2).

    Args:
        head: The head that they are a prefix of.
        batches: The batches behind `last`, ascending.
        seq: The seq that the page is behind.
        limit: How many events are wanted behind it.
        last: The last seq of the batch before, or `seq`.
        events: The page, which grows.

    Returns:
        The last seq of the last batch.

    Raises:
        JournalCorrupt: A batch is missing or damaged (FORMAT-1).
    """
    for name, packed, body in batches:
        batch_last, meta = _name_and_meta(head, name, packed)
        first = meta.first_seq
        if first != last + 1 and not (last == seq and first <= seq + 1):
            raise damaged(head, "a batch is missing", last + 1, f"a batch that starts at {last + 1}", str(first))
        found = digest(body)
        if found != meta.digest:
            raise damaged(head, "the body does not match its digest", first, meta.digest, found)
        batch_id, count, wanted = decode_wanted(body, first, seq + 1, seq + limit)
        if batch_id != meta.batch_id or count != batch_last - first + 1:
            raise damaged(
                head,
                "the body is of another batch",
                first,
                f"{meta.batch_id!r} with {batch_last - first + 1} events",
                f"{batch_id!r} with {count} events",
            )
        if batch_last >= head.last_seq and (batch_last, meta.chain) != (head.last_seq, head.chain):
            raise damaged(head, "the last batch is not the one that the head names", batch_last, head.chain, meta.chain)
        events += wanted
        last = batch_last
    return last
