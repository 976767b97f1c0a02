"""Mutants of listing, trim, delete and purge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from statebook.atomic import AtomicJournalStorage
from statebook.errors import CursorFenced, HeadConflict, Trimmed, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import (
    ANY,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    ExportCursor,
    JournalHead,
    Receipt,
    ThreadPage,
    WriterClaim,
)
from statebook_conformance.mutants.cursor import wrapped
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.over_atomic import over_atomic
from statebook_conformance.mutants.wrapping import BadJournal, wrapping

# ------------------------------------------------------------------------------------------------------------ LIFE-1


class _EdgeLost(ForwardJournal):
    """Begins each further page one thread too late."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        if after is None:
            return super().list_threads(scope, limit=limit)
        skipped = super().list_threads(scope, after=after, limit=1)
        return super().list_threads(scope, after=(skipped.threads or (after,))[-1], limit=limit)


class _EdgeRepeated(ForwardJournal):
    """Begins each further page with the last thread of the one before."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        page = super().list_threads(scope, after=after, limit=limit)
        if after is None or not page.threads:
            return page
        threads = (after, *page.threads)
        return ThreadPage(threads[:limit], page.has_more or len(threads) > limit)


class _Remembering(ForwardJournal):
    """Keeps an index of its own of all threads that were ever claimed through it."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self.claimed: dict[str, ThreadKey] = {}

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        self.claimed[key.name] = key
        return super().claim(key, writer_id, replacing=replacing)

    def page(self, covers: Callable[[ThreadKey], bool], after: ThreadKey | None, limit: int) -> list[ThreadKey]:
        """The next threads of the index."""
        names = sorted(name for name, key in self.claimed.items() if covers(key))
        behind = [name for name in names if after is None or name > after.name]
        return [self.claimed[name] for name in behind[:limit]]


class _PrefixBleed(_Remembering):
    """Selects by the start of the name, without its end."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        prefix = scope.prefix.rstrip("/")
        found = self.page(
            lambda key: key.name.startswith(prefix) and self.inner.head(key) is not None, after, limit + 1
        )
        return ThreadPage(tuple(found[:limit]), len(found) > limit)


class _NoneIsEverybody(_Remembering):
    """Takes the absent user for all users."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        if scope.user_id is not None:
            return super().list_threads(scope, after=after, limit=limit)
        agent, session = scope.agent_id, scope.session_id
        found = self.page(
            lambda key: (agent in (None, key.agent_id)) and (session in (None, key.session_id)), after, limit + 1
        )
        return ThreadPage(tuple(found[:limit]), len(found) > limit)


class _TombstonesCutPages(_Remembering):
    """Reads a page of names, drops those that are deleted, and takes a short page for the last one."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        found = self.page(scope.covers, after, limit)
        live = tuple(key for key in found if self.inner.head(key) is not None)
        return ThreadPage(live, len(live) == limit)


class _ListsTheDeleted(_Remembering):
    """Never takes a name out of its index."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        found = self.page(scope.covers, after, limit + 1)
        return ThreadPage(tuple(found[:limit]), len(found) > limit)


class _StopsAtAThousand(ForwardJournal):
    """Asks its driver once."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        page = super().list_threads(scope, after=after, limit=min(limit, 1_000))
        return ThreadPage(page.threads, False) if len(page.threads) == 1_000 else page


# ------------------------------------------------------------------------------------------------------------ LIFE-2


class _TrimPassesCursor(ForwardJournal):
    """Does not know the cursors: it moves them out of the way."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._cursors: dict[tuple[ThreadKey, str], ExportCursor] = {}

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = self._cursors[key, exporter] = super().open_cursor(key, exporter)
        return cursor

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        head = self.inner.head(key)
        for cursor in self._cursors.values():
            if head is not None and cursor.key == key and before_seq <= head.last_seq:
                try:
                    self.inner.advance_cursor(cursor, before_seq)
                except CursorFenced:
                    continue
        return super().trim(key, before_seq)


class _Pretending(ForwardJournal):
    """Shows a first_seq of its own."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self.first: dict[ThreadKey, int] = {}

    def head(self, key: ThreadKey) -> JournalHead | None:
        head = super().head(key)
        if head is None or key not in self.first:
            return head
        return msgspec.structs.replace(head, first_seq=self.first[key])

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        if seq < self.first.get(key, 1) - 1:
            raise Trimmed("trimmed away", first_seq=self.first[key], key=key.name)
        return super().read_after(key, seq, limit)

    def shown(self, key: ThreadKey, head: JournalHead, first_seq: int) -> JournalHead:
        """Show this first_seq from now on."""
        self.first[key] = first_seq
        return msgspec.structs.replace(head, first_seq=first_seq)


class _TrimPassesCheckpoint(_Pretending):
    """Does not look at the checkpoint."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        head = super().trim(key, before_seq)
        if head.checkpoint_seq is None or before_seq <= head.checkpoint_seq or head.first_seq < head.checkpoint_seq:
            return head
        return self.shown(key, head, min(before_seq, head.last_seq + 1))


class _TrimLowers(_Pretending):
    """Writes the number that it was given."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        return self.shown(key, super().trim(key, before_seq), max(1, before_seq))


class _TrimKeepsTheBytes(_Pretending):
    """Moves first_seq and nothing else."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        head = self.inner.trim(key, 0)
        return self.shown(key, head, min(before_seq, head.last_seq + 1))


class _TrimRenumbers(ForwardJournal):
    """Counts what is left from 1 again."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        head = self.inner.head(key)
        moved = 0 if head is None else head.first_seq - 1
        events = tuple(msgspec.structs.replace(event, seq=event.seq - moved) for event in page.events)
        return msgspec.structs.replace(page, events=events)


class _TrimFencesTheWriter(ForwardJournal):
    """Claims the journal in order to trim it."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        if type(before_seq) is int and before_seq > 1 and self.inner.head(key) is not None:
            self.inner.claim(key, "maintenance")
        return super().trim(key, before_seq)


# ------------------------------------------------------------------------------------------------------------ LIFE-5


class _DeleteResetsEpoch(ForwardJournal):
    """Removes the row instead of leaving a tombstone."""

    def delete(self, key: ThreadKey) -> bool:
        deleted = super().delete(key)
        self.inner.purge(key)
        return deleted


class _DeleteKeepsReceipts(BadJournal):
    """Finds receipts by thread and batch id, whatever the incarnation."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with self.memory.lock:
            kept = self.memory.kept.get((claim.key, batch.batch_id))
            if isinstance(kept, Receipt) and kept.journal_id != claim.journal_id:
                return msgspec.structs.replace(kept, replayed=True)
            receipt = self.memory.kept[claim.key, batch.batch_id] = super().append(claim, batch, base_seq)
        return receipt


class _DeleteFencesNobody(ForwardJournal):
    """Lets the writer of a deleted journal go on in the next incarnation."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except WriterFenced:
            head = self.inner.head(claim.key)
            if head is not None and head.journal_id == claim.journal_id:
                raise
            fresh = self.inner.claim(claim.key, claim.writer_id)
            return super().append(fresh, batch, fresh.last_seq)


class _PurgeOfAnOpenJournal(ForwardJournal):
    """Deletes what it was to purge."""

    def purge(self, key: ThreadKey) -> bool:
        try:
            return super().purge(key)
        except HeadConflict:
            self.inner.delete(key)
            return super().purge(key)


class _PurgeDoesNothing(ForwardJournal):
    """Says that it has removed the tombstone."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._purged: set[ThreadKey] = set()

    def purge(self, key: ThreadKey) -> bool:
        if self.inner.head(key) is not None:
            return super().purge(key)
        first = key not in self._purged
        self._purged.add(key)
        return first


class _DeletesNoBlobs(ForwardAtomic):
    """Misses what it was to delete, and reports success."""

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        if scope.endswith("/thread"):
            super().delete_blobs(scope, names)


def _deletes_no_blobs(storage: AtomicJournalStorage) -> AtomicJournalStorage:
    return _DeletesNoBlobs(storage)


LISTING_EDGE_LOST: Final = Mutant(
    "listing-edge-lost", "the thread at the edge of each page is lost", wrapped(_EdgeLost), canary=True
)
LISTING_EDGE_REPEATED: Final = Mutant(
    "listing-edge-repeated", "the thread at the edge of each page is listed twice", wrapped(_EdgeRepeated)
)
LISTING_PREFIX_BLEED: Final = Mutant(
    "listing-prefix-bleed", "the listing of `a` shows the threads of `ab`", wrapped(_PrefixBleed)
)
LISTING_NONE_IS_EVERYBODY: Final = Mutant(
    "listing-none-is-everybody", "the listing of the absent user shows everybody's threads", wrapped(_NoneIsEverybody)
)
LISTING_TOMBSTONES_CUT_PAGES: Final = Mutant(
    "listing-tombstones-cut-pages",
    "a page that begins with deleted journals is short and counts as the last",
    wrapped(_TombstonesCutPages),
)
LISTING_SHOWS_THE_DELETED: Final = Mutant(
    "listing-shows-the-deleted", "deleted journals stay in the listing", wrapped(_ListsTheDeleted)
)
LISTING_STOPS_AT_A_THOUSAND: Final = Mutant(
    "listing-threads-stops-at-1000", "1,010 threads come back as 1,000", wrapped(_StopsAtAThousand)
)
TRIM_PASSES_CURSOR: Final = Mutant(
    "trim-passes-cursor", "a trim takes away what an exporter has not read", wrapped(_TrimPassesCursor)
)
TRIM_PASSES_CHECKPOINT: Final = Mutant(
    "trim-passes-checkpoint", "a trim takes the checkpoint away", wrapped(_TrimPassesCheckpoint)
)
TRIM_LOWERS_FIRST_SEQ: Final = Mutant(
    "trim-lowers-first-seq", "a later trim to a lower seq brings nothing back, but says so", wrapped(_TrimLowers)
)
TRIM_RENUMBERS: Final = Mutant("trim-renumbers", "what is left is counted from 1 again", wrapped(_TrimRenumbers))
TRIM_FENCES_THE_WRITER: Final = Mutant(
    "trim-fences-the-writer", "maintenance claims the journal and ends its writer", wrapped(_TrimFencesTheWriter)
)
TRIM_KEEPS_THE_BYTES: Final = Mutant(
    "trim-keeps-the-bytes",
    "a trim frees nothing, and the medium grows for ever",
    over_atomic(journal=_TrimKeepsTheBytes),
)
DELETE_RESETS_EPOCH: Final = Mutant(
    "delete-resets-epoch", "a deleted journal starts again at epoch 1", wrapped(_DeleteResetsEpoch)
)
DELETE_KEEPS_RECEIPTS: Final = Mutant(
    "delete-keeps-receipts",
    "a new journal drops its first batch as a duplicate of the old one's",
    wrapping(journal=_DeleteKeepsReceipts),
)
DELETE_FENCES_NOBODY: Final = Mutant(
    "delete-fences-nobody", "the writer of a deleted journal writes into the next one", wrapped(_DeleteFencesNobody)
)
PURGE_OF_AN_OPEN_JOURNAL: Final = Mutant(
    "purge-of-an-open-journal", "purge does not look whether the journal is open", wrapped(_PurgeOfAnOpenJournal)
)
PURGE_DOES_NOTHING: Final = Mutant(
    "purge-does-nothing", "purge reports success, and tombstone and cursors stay", wrapped(_PurgeDoesNothing)
)
JOURNAL_DELETE_LEAVES_ORPHANS: Final = Mutant(
    "journal-delete-leaves-orphans",
    "delete and purge miss names with braces, and report success",
    over_atomic(atomic=_deletes_no_blobs),
)


class _AnyLimit(ForwardJournal):
    """Lets the driver make sense of a limit."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        return super().list_threads(scope, after=after, limit=min(max(limit, 1), 10_000))


class _ByOffset(BadJournal):
    """Remembers how many threads were listed before, and skips as many."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        offset = 0 if after is None else int(self.memory.kept.get((scope, after), 0))
        found = super().list_threads(scope, limit=min(10_000, offset + limit + 1)).threads
        page = found[offset : offset + limit]
        if page:
            self.memory.kept[scope, page[-1]] = offset + len(page)
        return ThreadPage(page, len(found) > offset + limit)


LISTING_TAKES_ANY_LIMIT: Final = Mutant(
    "listing-takes-any-limit",
    "a page limit of 0, -1 or 10,001 means something else on each backend",
    wrapped(_AnyLimit),
)
LISTING_PAGES_BY_OFFSET: Final = Mutant(
    "listing-pages-by-offset",
    "pages are cut by offset, so that what comes or goes before it shifts them",
    wrapping(journal=_ByOffset),
)
