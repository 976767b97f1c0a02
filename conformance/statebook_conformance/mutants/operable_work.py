"""Mutants of work: calls whose cost grows with the journal, or is many times what it has to be (HEAD-5, READ-4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import (
    ANY,
    PAGE_MAX,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    JournalHead,
    Receipt,
    RecordedEvent,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping

_BYTES_EACH: Final = 100


def _all_events(journal: ThreadJournalStore, key: ThreadKey) -> Sequence[RecordedEvent]:
    """Every event of a journal, read from its start."""
    head = journal.head(key)
    events: list[RecordedEvent] = []
    after = 0 if head is None else head.first_seq - 1
    while head is not None and after < head.last_seq:
        page = journal.read_after(key, after, PAGE_MAX).events
        events.extend(page)
        after += len(page)
    return events


def _ids(journal: ThreadJournalStore, key: ThreadKey) -> int:
    """How many different event ids there are: one by one, as a program does that keeps no index."""
    return len({str(event.event_id) for event in _all_events(journal, key)})


class _Deduplicates(BadJournal):
    """Looks for the ids of a batch in all of the journal."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        _ids(self.inner, claim.key)
        return self.inner.append(claim, batch, base_seq)


class _OneFile(BadJournal):
    """Keeps a journal in one file, which each append writes anew."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_BYTES_EACH * base_seq))
        return self.inner.append(claim, batch, base_seq)


class _OneValue(BadJournal):
    """Keeps a journal in one value, which each append copies: few calls, much memory."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        whole = bytes(_BYTES_EACH * base_seq)
        self.memory.kept["whole"] = whole + b"\n"
        return self.inner.append(claim, batch, base_seq)


class _ReadsAtClaim(BadJournal):
    """Reads a journal into memory before it claims it."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        _ids(self.inner, key)
        return self.inner.claim(key, writer_id, replacing=replacing)


class _ReadsAtOpen(ForwardBackend):
    """Reads all journals of the namespace into memory when it is opened."""

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        journal = self.inner.open_journal(require)
        for key in journal.list_threads(ThreadScope("user")).threads:
            _ids(journal, key)
        return journal


class _SearchesToSettle(BadJournal):
    """Looks for a batch in all of the journal."""

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        _ids(self.inner, claim.key)
        return self.inner.settle(claim, batch_id, base_seq)


class _WalksToTrim(BadJournal):
    """Walks over all events to find those that go."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        _ids(self.inner, key)
        return self.inner.trim(key, before_seq)


class _ReadsFromStart(BadJournal):
    """Reads from the start, and drops what nobody asked for."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        self.inner.read_after(key, seq, limit)
        events = [event for event in _all_events(self.inner, key) if event.seq > seq]
        head = self.inner.head(key)
        return EventPage(tuple(events[:limit]), len(events) > limit, 0 if head is None else head.last_seq)


class _CopiesToRead(BadJournal):
    """Takes a copy of all of the journal for each page: few calls, much memory."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = self.inner.read_after(key, seq, limit)
        self.memory.kept["copy"] = bytes(_BYTES_EACH * page.last_seq)
        return page


APPEND_GROWS: Final = Mutant(
    "append-cost-grows",
    "an append looks for its event ids in all of the journal",
    wrapping(journal=_Deduplicates),
)
ONE_FILE: Final = Mutant(
    "journal-in-one-file", "each append writes all of the journal anew", wrapping(journal=_OneFile)
)
ONE_VALUE: Final = Mutant("journal-in-one-value", "each append copies all of the journal", wrapping(journal=_OneValue))
CLAIM_READS: Final = Mutant(
    "claim-reads-all", "a claim reads the journal from its start", wrapping(journal=_ReadsAtClaim)
)
OPEN_READS: Final = Mutant("open-reads-all", "a store reads all that there is when it is opened", _ReadsAtOpen)
SETTLE_SEARCHES: Final = Mutant(
    "settle-searches-all", "settle looks for the batch in all of the journal", wrapping(journal=_SearchesToSettle)
)
TRIM_WALKS: Final = Mutant("trim-walks-over-all", "a trim walks over all events", wrapping(journal=_WalksToTrim))
TAIL_READS: Final = Mutant(
    "tail-reads-all", "a page is read from the start of the journal", wrapping(journal=_ReadsFromStart)
)
PAGE_COPIES: Final = Mutant("page-copies-all", "a page copies all of the journal", wrapping(journal=_CopiesToRead))
