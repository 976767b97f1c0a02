"""Batches as rows: verification, receipts, the window of the newest ones, and pages of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from statebook.codec import CHAIN_START, chain_next, decode_event_ids, decode_wanted, digest, encode_value
from statebook.errors import JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import Receipt, RecordedEvent
from statebook.records import HeadState
from statebook.window import WINDOW_BATCHES, Window
from statebook_backends.mysql.heads import PACKED_HEAD, KnownHead
from statebook_backends.mysql.sql import Row, Sql

if TYPE_CHECKING:
    from statebook_backends.mysql.transactions import Transaction

_COLUMNS: Final = "first_seq, last_seq, batch_id, epoch, digest, chain, body"
_JID: Final = "(SELECT jid FROM ~journal WHERE namespace = ? AND name = ?)"
NEWEST: Final = f"SELECT {_COLUMNS} FROM ~batch WHERE jid = {_JID} ORDER BY last_seq DESC LIMIT ?"  # noqa: S608
BY_ID: Final = f"SELECT {_COLUMNS} FROM ~batch WHERE jid = {_JID} AND batch_id = ?"  # noqa: S608
BEHIND: Final = f"SELECT {_COLUMNS} FROM ~batch WHERE jid = {_JID} AND last_seq > ? ORDER BY last_seq LIMIT ?"  # noqa: S608
# A page is one statement, and so one snapshot: the head in a row without a body, then the batches. They end with the
# one that holds the last event, so that no more is sent than is asked for. All that is short comes in one column: the
# driver pays for each.
_SHORT: Final = "CONCAT_WS(' ', first_seq, last_seq, digest, chain, HEX(batch_id))"
_PAGE: Final = (
    f"SELECT {PACKED_HEAD}, NULL FROM ~journal WHERE namespace = ? AND name = ? UNION ALL "  # noqa: S608
    f"(SELECT {_SHORT}, body FROM ~batch WHERE jid = {{jid}} AND last_seq > ? AND last_seq <= COALESCE("
    "(SELECT MIN(b.last_seq) FROM ~batch AS b WHERE b.jid = {jid} AND b.last_seq >= ?), ?) ORDER BY last_seq LIMIT ?)"
)
_PAGE_BY_NAME: Final = _PAGE.format(jid=_JID)
_PAGE_BY_JID: Final = _PAGE.format(jid="?")
_BEHIND_ALL: Final = (1 << 63) - 1
_ROWS_AT_ONCE: Final = 256
_OLDEST_IN_WINDOW: Final = "SELECT last_seq FROM ~batch WHERE jid = ? ORDER BY last_seq DESC LIMIT 1 OFFSET ?"
_LEAVING: Final = (
    "SELECT last_seq, body FROM ~batch WHERE jid = ? AND last_seq >= ? AND last_seq < ? AND LENGTH(body) > 0"
)
_EMPTY_BODIES: Final = "UPDATE ~batch SET body = '' WHERE jid = ? AND last_seq < ? AND LENGTH(body) > 0 LIMIT ?"
_SET_BODY: Final = "UPDATE ~batch SET body = ? WHERE jid = ? AND last_seq = ?"

_BatchRow: TypeAlias = "tuple[int, int, bytes, int, str, str, bytes]"
_PageRow: TypeAlias = "tuple[str, bytes]"


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

    @classmethod
    def of(cls, row: Row) -> StoredBatch:
        """Turn a row into a batch, unverified."""
        first_seq, last_seq, batch_id, epoch, stored, chain, body = cast("_BatchRow", row)
        return cls(first_seq, last_seq, batch_id.decode(errors="replace"), epoch, stored, chain, body)

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
        f"{text} at seq {seq}", what="batch", expected=expected, found=found, key=key.name, backend="mysql"
    )


# ------------------------------------------------------------------------------------------------- evidence for appends


def window_of(known: KnownHead, rows: Iterable[Row]) -> Window:
    """Build the window of a head from its newest batches (APPEND-1).

    Args:
        known: The head.
        rows: What `NEWEST` gave for `WINDOW_BATCHES`.

    Returns:
        The window.

    Raises:
        JournalCorrupt: A batch is missing or damaged, or the chain is broken.
    """
    head = known.head
    entries: list[tuple[Receipt, tuple[str, ...]]] = []
    last, chain = head.last_seq, head.chain
    newer: StoredBatch | None = None
    for row in rows:
        batch = StoredBatch.of(row)
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
            backend="mysql",
        )


def receipt_by_id(known: KnownHead, rows: tuple[Row, ...]) -> Receipt | None:
    """Where a batch is: recognised by its id for ever (APPEND-1, `Feature.RECEIPTS_KEPT`).

    Args:
        known: The head.
        rows: What `BY_ID` gave.

    Returns:
        Its receipt, or None.

    Raises:
        JournalCorrupt: Its row is damaged.
    """
    if not rows:
        return None
    batch = StoredBatch.of(rows[0])
    batch.check(known.head)
    return batch.receipt(known.head.journal_id)


def event_ids_behind(known: KnownHead, rows: tuple[Row, ...], base_seq: int) -> tuple[str, ...]:
    """The event ids of the batch that starts right behind a base, or none (APPEND-1).

    Args:
        known: The head.
        rows: What `BEHIND` gave for the base.
        base_seq: The base.

    Returns:
        The ids.

    Raises:
        JournalCorrupt: Its row is damaged.
    """
    if not rows or rows[0][0] != base_seq + 1:
        return ()
    return StoredBatch.of(rows[0]).check(known.head)


# ---------------------------------------------------------------------------------------------------------------- pages


def page_query(sql: Sql, namespace: bytes, name: bytes, jid: int | None, seq: int, limit: int) -> bytes:
    """The query for a head and the batches that hold the events behind a seq.

    Args:
        sql: Renders statements.
        namespace: The namespace.
        name: The name of the thread.
        jid: The number of the thread where it is known: it spares the server two look-ups.
        seq: The seq.
        limit: How many events at most.

    Returns:
        The query.
    """
    if jid is None:
        thread = (namespace, name)
        return sql(_PAGE_BY_NAME, *thread, *thread, seq, *thread, seq + limit, _BEHIND_ALL, limit)
    return sql(_PAGE_BY_JID, namespace, name, jid, seq, jid, seq + limit, _BEHIND_ALL, limit)


def events_of(known: KnownHead, rows: Iterable[Row], seq: int, limit: int) -> list[RecordedEvent]:
    """Verify and decode the events behind a seq that was judged against the head (READ-1, READ-2).

    Args:
        known: The head of a snapshot.
        rows: What `page_query` gave, without the head's row.
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
    for row in rows:
        meta, body = cast("_PageRow", row)
        first, batch_last, stored_digest, batch_chain, batch_id = _page_row(known, meta, last + 1)
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


def _page_row(known: KnownHead, meta: str, seq: int) -> tuple[int, int, str, str, str]:
    try:
        first, last, stored_digest, chain, batch_id = meta.split(" ")
        return int(first), int(last), stored_digest, chain, bytes.fromhex(batch_id).decode()
    except ValueError as error:
        raise damaged(known.head.key, "the columns are damaged", seq, "five words", repr(meta[:200])) from error


def batches_behind(tx: Transaction, known: KnownHead, seq: int) -> Iterator[StoredBatch]:
    """The rows behind a seq, ascending, unverified, some at a time; for a check in a snapshot (FORMAT-3)."""
    name = known.head.key.name.encode()
    while True:
        rows = tx.ask(BEHIND, known.namespace, name, seq, _ROWS_AT_ONCE)
        for row in rows:
            batch = StoredBatch.of(row)
            seq = batch.last_seq
            yield batch
        if len(rows) < _ROWS_AT_ONCE:
            return


# ------------------------------------------------------------------------------------------------------------ trimming


def trim_batches(tx: Transaction, jid: int, first_seq: int) -> None:
    """Remove the events of the batches that end before a seq; receipts stay, of the newest the event ids too.

    Args:
        tx: A transaction that holds the head's lock.
        jid: The journal.
        first_seq: The first seq to keep.
    """
    oldest = tx.ask(_OLDEST_IN_WINDOW, jid, WINDOW_BATCHES - 1)
    stubs: list[tuple[bytes, int]] = []
    for row in tx.ask(_LEAVING, jid, oldest[0][0] if oldest else 0, first_seq):
        last_seq, body = cast("tuple[int, bytes]", row)
        batch_id, event_ids = decode_event_ids(body)
        stub = encode_value({"batch_id": batch_id, "events": [{"event_id": event_id} for event_id in event_ids]})
        stubs.append((stub, last_seq))
    tx.change_many(_EMPTY_BODIES, jid, first_seq)
    for stub, last_seq in stubs:
        tx.change(_SET_BODY, stub, jid, last_seq)
