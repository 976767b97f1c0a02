"""Reads a journal's batches through its head: tail, segments, index, all verified (HEAD-3, READ)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, takewhile

from statebook.atomic import AtomicJournalStorage, KnownBlobs
from statebook.atomic_head import BatchLine, StoredHead, decode_lines, gap, tail_from
from statebook.codec import decode_event_ids, decode_wanted
from statebook.errors import JournalCorrupt
from statebook.index_tree import Reference, TreeReader
from statebook.keys import ThreadKey
from statebook.model import EventPage, Receipt, RecordedEvent
from statebook.records import FrozenBatch
from statebook.window import Window


def thread_scope(key: ThreadKey) -> str:
    """The scope of a thread's journal."""
    return f"t/{key.name}"


class _PageTree(TreeReader):
    """Reads a tree through what its storage remembers: a blob that a head names by its digest is what it was."""

    def __init__(self, storage: AtomicJournalStorage, known: KnownBlobs, key: ThreadKey) -> None:
        super().__init__(storage, thread_scope(key), JournalCorrupt, key.name)
        self._known = known

    def fetch(self, reference: Reference) -> bytes:
        blob = self._known.get(reference.sha256)
        if blob is None:
            blob = super().fetch(reference)
            self._known.keep(reference.sha256, blob)
        return blob

    def fetch_ahead(self, references: Iterator[Reference]) -> Iterator[tuple[Reference, bytes]]:
        for known, some in groupby(references, lambda reference: self._known.get(reference.sha256)):
            if known is None:
                yield from super().fetch_ahead(some)
            else:
                for reference in some:
                    yield reference, known


class JournalReader:
    """Reads the batches of one journal, for one call. Every method may raise `BlobMissing`."""

    def __init__(self, storage: AtomicJournalStorage, key: ThreadKey) -> None:
        """Read a journal.

        Args:
            storage: The storage.
            key: The thread.
        """
        self._storage = storage
        self.key = key
        self.tree: TreeReader = TreeReader(storage, thread_scope(key), JournalCorrupt, key.name)

    def segment(self, reference: Reference) -> list[BatchLine]:
        """The batches of a segment, checked to cover exactly what the reference says."""
        return self._segment(reference, self.tree.fetch(reference))

    def _segment(self, reference: Reference, blob: bytes) -> list[BatchLine]:
        lines = decode_lines(blob, "segment", self.key)
        if not lines or lines[0].first != reference.first or lines[-1].last != reference.last:
            found = f"seq {lines[0].first} to {lines[-1].last}" if lines else "nothing"
            raise self.tree.damaged(f"segment {reference.name}", f"seq {reference.first} to {reference.last}", found)
        return lines

    def batches(self, head: StoredHead, low: int, high: int | None = None) -> Iterator[BatchLine]:
        """The batches that end at a seq or behind it, ascending, without a gap up to the head's end (HEAD-2).

        Args:
            head: The head.
            low: The first seq that is wanted.
            high: The last seq that is wanted, or None for the head's; behind its batch the rest is not to be asked for.

        Yields:
            The batches.
        """
        at: int | None = None
        for line in self._found(head, low, high):
            if (line.first > low) if at is None else (line.first != at):
                raise gap(self.key, low if at is None else at, line.first)
            at = line.last + 1
            yield line
        if (low if at is None else at) <= head.state.last_seq or (at or 0) > head.state.last_seq + 1:
            raise gap(self.key, head.state.last_seq + 1, low if at is None else at)

    def _found(self, head: StoredHead, low: int, high: int | None) -> Iterator[BatchLine]:
        end = head.state.last_seq if high is None else high
        wanted = takewhile(lambda reference: reference.first <= end, self.tree.segments(head.levels, low))
        for reference, blob in self.tree.fetch_ahead(wanted):
            for line in self._segment(reference, blob):
                if line.last >= low:
                    yield line
        yield from tail_from(head, low)

    def batches_back(self, head: StoredHead) -> Iterator[BatchLine]:
        """The batches that are still there, descending."""
        low = head.state.first_seq
        yield from reversed(list(tail_from(head, low)))
        for reference in self.tree.segments_back(head.levels, low):
            for line in reversed(self.segment(reference)):
                if line.last >= low:
                    yield line

    def batch_starting(self, head: StoredHead, first: int) -> BatchLine | None:
        """The batch that starts at a seq, or None where none does or it has been trimmed away (APPEND-1)."""
        if first > head.state.last_seq:
            return None
        low = max(first, head.state.first_seq)
        line = next(self._found(head, low, low), None)
        return line if line is not None and line.first == first else None

    def page(self, head: StoredHead, seq: int, limit: int) -> EventPage:
        """The events behind a seq (READ-1, READ-2)."""
        last_seq = head.state.last_seq
        events: list[RecordedEvent] = []
        known = self._storage.known_blobs
        if known is not None:
            self.tree = _PageTree(self._storage, known, self.key)
        if seq < last_seq:
            for line in self.batches(head, seq + 1, seq + limit):
                _, count, wanted = decode_wanted(bytes(line.body), line.first, seq + 1, seq + limit)
                if count != line.last - line.first + 1:
                    raise gap(self.key, line.last + 1, line.first + count)
                events += wanted
                if len(events) >= limit:
                    break
        page = tuple(events)
        return EventPage(page, bool(page) and page[-1].seq < last_seq, last_seq)

    def window(self, head: StoredHead) -> Window:
        """The window of a head: its receipts, and the event ids of those batches that are still there."""
        receipts = head.receipts_kept()
        event_ids: dict[int, tuple[str, ...]] = {}
        if receipts:
            oldest = receipts[0].first_seq
            for line in self.batches_back(head):
                if line.first < oldest:
                    break
                event_ids[line.first] = decode_event_ids(bytes(line.body))[1]
                if line.first == oldest:
                    break
        return Window(window_mark(head), [(receipt, event_ids.get(receipt.first_seq, ())) for receipt in receipts])

    def at_base(
        self, head: StoredHead, batch: FrozenBatch, base_seq: int, overlap: str | None
    ) -> tuple[Receipt | None, str | None]:
        """Look at the batch that starts behind the base: it is the same one, or overlaps, or is another (APPEND-1).

        Args:
            head: The head.
            batch: The batch that is to be appended.
            base_seq: Its base.
            overlap: The event id that the window has found, or None.

        Returns:
            The receipt where it is the same batch, and the event id that is already there, if any.
        """
        line = self.batch_starting(head, base_seq + 1)
        if line is None:
            return None, overlap
        batch_id, event_ids = decode_event_ids(bytes(line.body))
        if batch_id == batch.batch_id:
            return receipt_at(head, line, batch_id), None
        if overlap is None:
            there = frozenset(event_ids)
            overlap = next((event_id for event_id in batch.event_ids if event_id in there), None)
        return None, overlap

    def placed(self, head: StoredHead, batch_id: str, base_seq: int) -> Receipt | None:
        """Where a batch is in the chain: among the receipts, or as the batch that starts at `base_seq + 1`."""
        for receipt in head.receipts_kept():
            if receipt.batch_id == batch_id:
                return receipt
        line = self.batch_starting(head, base_seq + 1)
        if line is None or decode_event_ids(bytes(line.body))[0] != batch_id:
            return None
        return receipt_at(head, line, batch_id)


def receipt_at(head: StoredHead, line: BatchLine, batch_id: str) -> Receipt:
    """The receipt of a batch that was found in the chain."""
    return Receipt(batch_id, head.state.journal_id, line.first, line.last, line.epoch, line.digest)


def window_mark(head: StoredHead) -> str:
    """What a window is valid for: the chain, and what a trim has left of it."""
    return f"{head.state.chain}/{head.state.first_seq}"
