"""Batches as rows: verification, receipts, the window of the newest ones, and pages of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.codec import CHAIN_START, chain_next, decode_event_ids, decode_wanted, digest, encode_value
from statebook.errors import JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import Receipt, RecordedEvent
from statebook.records import HeadState
from statebook.window import WINDOW_BATCHES, Window

if TYPE_CHECKING:
    from sqlite3 import Cursor

    from statebook_backends.sqlite.heads import KnownHead

_NEWEST: Final = (
    "SELECT first_seq, last_seq, batch_id, epoch, digest, chain, body FROM batch WHERE jid = ? "
    "ORDER BY last_seq DESC LIMIT ?"
)
_BY_ID: Final = (
    "SELECT first_seq, last_seq, batch_id, epoch, digest, chain, body FROM batch WHERE batch_id = ? AND jid = ?"
)
_BEHIND: Final = (
    "SELECT first_seq, last_seq, batch_id, epoch, digest, chain, body FROM batch WHERE jid = ? AND last_seq > ? "
    "ORDER BY last_seq LIMIT ?"
)
_PAGE: Final = (
    "SELECT first_seq, last_seq, batch_id, digest, body, chain FROM batch WHERE jid = ? AND last_seq > ? "
    "ORDER BY last_seq LIMIT ?"
)
_OLDEST_IN_WINDOW: Final = "SELECT last_seq FROM batch WHERE jid = ? ORDER BY last_seq DESC LIMIT 1 OFFSET ?"
_LEAVING: Final = (
    "SELECT last_seq, body FROM batch WHERE jid = ? AND last_seq >= ? AND last_seq < ? AND length(body) > 0"
)
_EMPTY_BODIES: Final = "UPDATE batch SET body = x'' WHERE jid = ? AND last_seq < ? AND length(body) > 0"
_SET_BODY: Final = "UPDATE batch SET body = ? WHERE jid = ? AND last_seq = ?"


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """One row.

    Attributes:
        first_seq: The seq of its first event.
        last_seq: The seq of its last event.
        batch_id: The batch.
        epoch: The epoch that it was committed under.
        digest: The digest of its body.
        chain: The chain digest behind it.
        body: Its body; where it is trimmed away only the event ids, or nothing.
    """

    first_seq: int
    last_seq: int
    batch_id: str
    epoch: int
    digest: str
    chain: str
    body: bytes

    def receipt(self, journal_id: str) -> Receipt:
        """Its receipt."""
        return Receipt(self.batch_id, journal_id, self.first_seq, self.last_seq, self.epoch, self.digest)

    def check(self, head: HeadState) -> tuple[str, ...]:
        """Verify the row by itself, and give its event ids; none are known of an old batch that is trimmed away.

        Raises:
            JournalCorrupt: The body does not match (FORMAT-1).
        """
        if self.last_seq < head.first_seq and not self.body:
            return ()
        if self.last_seq >= head.first_seq:
            found = digest(self.body)
            if found != self.digest:
                raise damaged(head.key, "the body does not match its digest", self.first_seq, self.digest, found)
        batch_id, event_ids = decode_event_ids(self.body)
        if batch_id != self.batch_id or len(event_ids) != self.last_seq - self.first_seq + 1:
            raise damaged(
                head.key,
                "the body is of another batch",
                self.first_seq,
                f"{self.batch_id!r} with {self.last_seq - self.first_seq + 1} events",
                f"{batch_id!r} with {len(event_ids)} events",
            )
        return event_ids


def damaged(key: ThreadKey, text: str, seq: int, expected: str, found: str) -> JournalCorrupt:
    """The error for a batch that is not as it was written (FORMAT-1)."""
    return JournalCorrupt(
        f"{text} at seq {seq}", what="batch", expected=expected, found=found, key=key.name, backend="sqlite"
    )


# ------------------------------------------------------------------------------------------------- evidence for appends


def load_window(cursor: Cursor, known: KnownHead) -> Window:
    """Load the window of a head from its newest batches (APPEND-1).

    Args:
        cursor: Inside a transaction.
        known: The head.

    Returns:
        The window.

    Raises:
        JournalCorrupt: A batch is missing or damaged, or the chain is broken.
    """
    head = known.head
    entries: list[tuple[Receipt, tuple[str, ...]]] = []
    last, chain = head.last_seq, head.chain
    newer: StoredBatch | None = None
    for row in cursor.execute(_NEWEST, (known.jid, WINDOW_BATCHES)):
        batch = StoredBatch(*row)
        if batch.last_seq != last:
            raise damaged(head.key, "a batch is missing", last, f"a batch that ends at {last}", f"{batch.last_seq}")
        if newer is None:
            _check_link(head, batch.chain, chain, last)
        else:
            _check_link(head, _chain_behind(batch.chain, newer), newer.chain, newer.first_seq)
        entries.append((batch.receipt(head.journal_id), batch.check(head)))
        last, newer = batch.first_seq - 1, batch
    if len(entries) < WINDOW_BATCHES and last != 0:
        raise damaged(head.key, "a batch is missing", last, f"a batch that ends at {last}", "none")
    if newer is None:
        _check_link(head, CHAIN_START, chain, 1)
    elif newer.first_seq == 1:
        _check_link(head, _chain_behind(CHAIN_START, newer), newer.chain, 1)
    return Window(head.chain, reversed(entries))


def _chain_behind(chain: str, batch: StoredBatch) -> str:
    return chain_next(chain, batch.digest, batch.first_seq, batch.last_seq, batch.epoch)


def _check_link(head: HeadState, found: str, expected: str, seq: int) -> None:
    if found != expected:
        raise JournalCorrupt(
            f"the chain is broken at seq {seq}",
            what="chain",
            expected=expected,
            found=found,
            key=head.key.name,
            backend="sqlite",
        )


def find_batch(cursor: Cursor, known: KnownHead, batch_id: str) -> Receipt | None:
    """Look a batch up by its id: recognised for ever (APPEND-1, `Feature.RECEIPTS_KEPT`).

    Raises:
        JournalCorrupt: Its row is damaged.
    """
    row = cursor.execute(_BY_ID, (batch_id, known.jid)).fetchone()
    if row is None:
        return None
    batch = StoredBatch(*row)
    batch.check(known.head)
    return batch.receipt(known.head.journal_id)


def event_ids_behind(cursor: Cursor, known: KnownHead, base_seq: int) -> tuple[str, ...]:
    """The event ids of the batch that starts right behind a base, or none (APPEND-1).

    Raises:
        JournalCorrupt: Its row is damaged.
    """
    row = cursor.execute(_BEHIND, (known.jid, base_seq, 1)).fetchone()
    if row is None or row[0] != base_seq + 1:
        return ()
    return StoredBatch(*row).check(known.head)


# ---------------------------------------------------------------------------------------------------------------- pages


def read_events(cursor: Cursor, known: KnownHead, seq: int, limit: int) -> list[RecordedEvent]:
    """Read and verify the events behind a seq that was judged against the head (READ-1, READ-2).

    Args:
        cursor: Inside a snapshot.
        known: The head of that snapshot.
        seq: At least `first_seq - 1`, at most `last_seq`.
        limit: How many at most.

    Returns:
        The events, contiguous.

    Raises:
        JournalCorrupt: A batch is missing or damaged (FORMAT-1).
    """
    head = known.head
    events: list[RecordedEvent] = []
    want = min(seq + limit, head.last_seq)
    last = seq
    chain = head.chain
    for first, batch_last, batch_id, stored_digest, body, batch_chain in cursor.execute(_PAGE, (known.jid, seq, limit)):
        if first != last + 1 and not (last == seq and first <= seq + 1):
            raise damaged(head.key, "a batch is missing", last + 1, f"a batch that starts at {last + 1}", str(first))
        found = digest(body)
        if found != stored_digest:
            raise damaged(head.key, "the body does not match its digest", first, str(stored_digest), found)
        there, count, wanted = decode_wanted(body, first, seq + 1, seq + limit)
        if there != batch_id or count != batch_last - first + 1:
            raise damaged(
                head.key,
                "the body is of another batch",
                first,
                f"{batch_id!r} with {batch_last - first + 1} events",
                f"{there!r} with {count} events",
            )
        events += wanted
        last, chain = batch_last, batch_chain
        if last >= want:
            break
    if last < want:
        raise damaged(head.key, "a batch is missing", last + 1, f"events up to {head.last_seq}", f"up to {last}")
    if last >= head.last_seq and (last, chain) != (head.last_seq, head.chain):
        raise damaged(head.key, "the last batch is not the one that the head names", last, head.chain, str(chain))
    return events


def batches_behind(cursor: Cursor, known: KnownHead, seq: int, limit: int) -> Iterator[StoredBatch]:
    """The rows behind a seq, ascending, unverified; for a check (FORMAT-3)."""
    for row in cursor.execute(_BEHIND, (known.jid, seq, limit)):
        yield StoredBatch(*row)


# ------------------------------------------------------------------------------------------------------------ trimming


def trim_batches(cursor: Cursor, jid: int, first_seq: int) -> None:
    """Remove the events of the batches that end before a seq; receipts stay, of the newest the event ids too.

    Args:
        cursor: Inside a transaction that holds the write lock.
        jid: The journal.
        first_seq: The first seq to keep.
    """
    row = cursor.execute(_OLDEST_IN_WINDOW, (jid, WINDOW_BATCHES - 1)).fetchone()
    stubs: list[tuple[bytes, int, int]] = []
    for last_seq, body in cursor.execute(_LEAVING, (jid, 0 if row is None else row[0], first_seq)):
        batch_id, event_ids = decode_event_ids(body)
        stub = encode_value({"batch_id": batch_id, "events": [{"event_id": event_id} for event_id in event_ids]})
        stubs.append((stub, jid, last_seq))
    cursor.execute(_EMPTY_BODIES, (jid, first_seq))
    cursor.executemany(_SET_BODY, stubs)
