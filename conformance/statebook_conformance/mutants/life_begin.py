"""Mutants of collections and of how journals begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from statebook.atomic import AtomicJournalStorage
from statebook.errors import WriterBusy
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    ANY,
    PAGE_MAX,
    Batch,
    ClaimInfo,
    CollectReport,
    Expect,
    ExportCursor,
    Receipt,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook_conformance.mutants.cursor import wrapped
from statebook_conformance.mutants.forward import ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping


class _DeletesReferenced(ForwardJournal):
    """Deletes whatever it lists."""

    def __init__(self, inner: ThreadJournalStore, storage: AtomicJournalStorage) -> None:
        super().__init__(inner)
        self._storage = storage

    def collect(self, key: ThreadKey) -> CollectReport:
        scope = f"t/{key.name}"
        names = self._storage.list_blobs(scope, None, PAGE_MAX).names
        self._storage.delete_blobs(scope, names)
        return CollectReport(len(names), 0)


class _DeletesReferencedBackend(ForwardBackend):
    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return _DeletesReferenced(super().journal_over(storage), storage)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return self.journal_over(self.inner.open_atomic(require))


class _CollectsNothing(ForwardJournal):
    """Says that there is nothing to do."""

    def collect(self, key: ThreadKey) -> CollectReport:
        self.inner.head(key)
        return CollectReport(0, 0)


class _CollectsNothingBackend(ForwardBackend):
    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return _CollectsNothing(super().journal_over(storage))


class _TakesHeldJournals(ForwardJournal):
    """Takes NONE for no condition."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        try:
            return super().claim(key, writer_id, replacing=replacing)
        except WriterBusy:
            return super().claim(key, writer_id)


class _ByExporterAlone(BadJournal):
    """Finds the position of an exporter by its name, whatever the thread."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        head = self.inner.head(key)
        known = min(int(self.memory.kept.get(exporter, 0)), 0 if head is None else head.last_seq)
        return super().advance_cursor(cursor, known) if known > cursor.acked_seq else cursor

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        moved = super().advance_cursor(cursor, to_seq)
        self.memory.kept[cursor.exporter] = moved.acked_seq
        return moved


class _ByBatchAlone(BadJournal):
    """Finds receipts by the batch's id, whatever the thread."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        kept = self.memory.kept.get(batch.batch_id)
        if isinstance(kept, Receipt) and kept.journal_id != claim.journal_id:
            return msgspec.structs.replace(kept, replayed=True)
        receipt = self.memory.kept[batch.batch_id] = super().append(claim, batch, base_seq)
        return receipt


COLLECTOR_DELETES_REFERENCED: Final = Mutant(
    "collector-deletes-referenced", "a collection deletes what the head refers to", _DeletesReferencedBackend
)
COLLECTOR_DOES_NOTHING: Final = Mutant(
    "collector-does-nothing", "what failed commits left behind stays for ever", _CollectsNothingBackend
)
HELD_JOURNAL_IS_TAKEN: Final = Mutant(
    "held-journal-is-taken", "who wants a free journal gets a held one", wrapped(_TakesHeldJournals)
)
CURSOR_KNOWN_BY_EXPORTER_ALONE: Final = Mutant(
    "cursor-known-by-exporter-alone",
    "an exporter's position is shared by all threads",
    wrapping(journal=_ByExporterAlone),
)
RECEIPTS_KNOWN_BY_BATCH_ALONE: Final = Mutant(
    "receipts-known-by-batch-alone",
    "a batch id that another thread has used is taken for a repetition",
    wrapping(journal=_ByBatchAlone),
)
