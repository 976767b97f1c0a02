"""Mutants of readers and of maintenance beside them: caches, snapshots, locks that outlive a page, false alarms."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from statebook.errors import BackendUnavailable, JournalCorrupt
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook.model import (
    ANY,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    Finding,
    JournalHead,
    Receipt,
    ThreadPage,
    VerifyReport,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.takeover import FILES, GAP_S, Blind
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping
from statebook_conformance.target import TargetBackend


class _Snapshot(Blind):
    """A handle that reads for ever in the snapshot of its first read, until it writes itself."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._seen: dict[ThreadKey, JournalHead] = {}

    def head(self, key: ThreadKey) -> JournalHead | None:
        head = self._seen.get(key) or self.inner.head(key)
        if head is not None:
            self._seen[key] = head
        return head

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        head = self.head(key)
        end = 0 if head is None else head.last_seq
        if seq >= end:
            return EventPage((), has_more=False, last_seq=seq)
        page = self.inner.read_after(key, seq, limit)
        events = tuple(event for event in page.events if event.seq <= end)
        return EventPage(events, bool(events) and events[-1].seq < end, end)

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        self._seen.pop(key, None)
        return self.inner.claim(key, writer_id, replacing=replacing)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self._seen.pop(claim.key, None)
        return self.inner.append(claim, batch, base_seq)


class _CachedHead(_Snapshot):
    """A handle that answers head() from a cache, and reads events from the store."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        return self.inner.read_after(key, seq, limit)


class _CachedListing(BadJournal):
    """A handle that lists once, and answers from that ever after."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._pages: dict[tuple[ThreadScope, ThreadKey | None, int], ThreadPage] = {}

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        page = self._pages.get((scope, after, limit))
        if page is None:
            page = self._pages[scope, after, limit] = self.inner.list_threads(scope, after=after, limit=limit)
        return page


class _PageHoldsLock(Blind):
    """Keeps the store locked between a page and the next one."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = self.inner.read_after(key, seq, limit)
        self.memory.kept["paged"] = page.has_more
        return page

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        deadline = time.monotonic() + 0.3
        while self.memory.kept.get("paged"):
            if time.monotonic() > deadline:
                raise BackendUnavailable("database is locked", key=claim.key.name)
            time.sleep(GAP_S)
        return self.inner.append(claim, batch, base_seq)


class _ReadsWait(Blind):
    """Keeps a flag in the store while it appends, and reads only where the flag is down."""

    def __init__(self, inner: ThreadJournalStore, backend: TargetBackend) -> None:
        super().__init__(inner, Memory())
        self._state = backend.open_state()
        self._slot = StateKey(None, "mutant", "writing")

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self._state.save(self._slot, b"1")
        try:
            time.sleep(20 * GAP_S)
            return self.inner.append(claim, batch, base_seq)
        finally:
            self._state.delete(self._slot)

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        deadline = time.monotonic() + 0.5
        while self._state.load(self._slot) is not None:
            if time.monotonic() > deadline:
                raise BackendUnavailable("lock wait timeout exceeded", key=key.name)
            time.sleep(GAP_S)
        return self.inner.read_after(key, seq, limit)

    def close(self) -> None:
        self._state.close()
        self.inner.close()


class _ReadsWaitBackend(ForwardBackend):
    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return _ReadsWait(super().open_journal(require), self.inner)


READS_WAIT_FOR_WRITER: Final = Mutant(
    "reads-wait-for-writer",
    "a read takes the lock of the commit under way, and waits for a writer that stands still",
    _ReadsWaitBackend,
    base=FILES,
)
FROZEN_SNAPSHOT: Final = Mutant(
    "frozen-snapshot",
    "a connection polls for ever in the snapshot of its first read",
    wrapping(journal=_Snapshot),
)
FROZEN_SNAPSHOT_ON_FILES: Final = Mutant(
    "frozen-snapshot-on-files",
    "a process polls for ever in the snapshot of its first read",
    wrapping(journal=_Snapshot),
    base=FILES,
)
CACHED_HEAD: Final = Mutant(
    "cached-head",
    "a handle answers head() from what it has seen before",
    wrapping(journal=_CachedHead),
)
CACHED_LISTING: Final = Mutant(
    "cached-listing",
    "a handle that has listed once never sees what others create or delete: a client's listing cache",
    wrapping(journal=_CachedListing),
)
CACHED_LISTING_ON_FILES: Final = Mutant(
    "cached-listing-on-files",
    "a process that has listed once never sees what others create",
    wrapping(journal=_CachedListing),
    base=FILES,
)
PAGE_HOLDS_LOCK: Final = Mutant(
    "page-holds-lock",
    "a page with more behind it keeps a transaction open, and every writer waits for the reader",
    wrapping(journal=_PageHoldsLock),
)


# -------------------------------------------------------------------------------------------------------- maintenance


class _FalseAlarm(BadJournal):
    """Reads the head, and the batches in a second step: what a trim took in between is reported as missing."""

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        before = self.inner.head(key)
        time.sleep(2 * GAP_S)
        report = self.inner.verify(key, deep=deep)
        after = self.inner.head(key)
        if before is None or after is None or before.first_seq == after.first_seq:
            return report
        missing = Finding("batch", "a batch that the head refers to is missing", before.first_seq)
        return msgspec.structs.replace(report, findings=(*report.findings, missing))


class _TrimIsDamage(BadJournal):
    """Reads the head, and the events in a second step: what a trim took in between makes the journal corrupt."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        before = self.inner.head(key)
        time.sleep(2 * GAP_S)
        after = self.inner.head(key)
        if before is not None and after is not None and seq < before.last_seq and before.first_seq != after.first_seq:
            raise JournalCorrupt("a batch that the head refers to is missing", what="batch", key=key.name)
        return self.inner.read_after(key, seq, limit)


class _MaintenanceClaims(BadJournal):
    """A trim that takes the journal from its writer."""

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        self.inner.claim(key, "maintenance")
        return self.inner.trim(key, before_seq)


VERIFY_FALSE_ALARM: Final = Mutant(
    "verify-false-alarm",
    "a verifier reports what a trim took between its two reads as missing",
    wrapping(journal=_FalseAlarm),
)
TRIM_TAKEN_FOR_DAMAGE: Final = Mutant(
    "trim-taken-for-damage",
    "a reader takes what a trim took between its two reads for damage",
    wrapping(journal=_TrimIsDamage),
)
MAINTENANCE_CLAIMS: Final = Mutant(
    "maintenance-claims",
    "a trim claims the journal first, and fences its writer",
    wrapping(journal=_MaintenanceClaims),
)
