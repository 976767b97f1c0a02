"""Reports everything that is wrong with a stored journal, instead of stopping at the first finding (FORMAT-3)."""

from __future__ import annotations

from statebook.atomic import AtomicJournalStorage
from statebook.atomic_cursors import CursorRecords, StoredCursor
from statebook.atomic_head import BatchLine, StoredHead
from statebook.atomic_moves import JournalHeads
from statebook.atomic_reader import JournalReader, thread_scope
from statebook.codec import CHAIN_START, chain_next, decode_events, digest
from statebook.errors import DataError, JournalCorrupt
from statebook.index_tree import BlobMissing, Reference, lost
from statebook.keys import ThreadKey
from statebook.model import Finding, Receipt, VerifyReport
from statebook.records import JournalState


class Verifier:
    """Verifies journals over a storage."""

    def __init__(self, storage: AtomicJournalStorage, heads: JournalHeads, cursors: CursorRecords) -> None:
        """Work over a storage.

        Args:
            storage: The storage.
            heads: Reads heads.
            cursors: Reads cursor records.
        """
        self._storage = storage
        self._heads = heads
        self._cursors = cursors

    def verify(self, key: ThreadKey, *, deep: bool) -> VerifyReport:
        """Check a journal and its cursors (FORMAT-3).

        Args:
            key: The thread.
            deep: Read every batch, not only the newest.

        Returns:
            The findings.
        """
        cursors, findings = self._read_cursors(key)
        reported: frozenset[str] = frozenset()

        def check(head: StoredHead | None, _: str | None) -> _Check:
            nonlocal reported
            run = _Check(self._storage, key, deep=deep)
            if head is None:
                self._check_orphans(key, run)
            elif head.state.state is JournalState.OPEN:
                run.journal(head)
                _check_cursors(head, cursors, run)
            # A blob that is missing under one head is damage only if it is missing under a later one too (LIFE-4).
            unsure = run.missing.keys() - reported
            reported |= run.missing.keys()
            if unsure:
                raise BlobMissing(run.missing[min(unsure)])
            return run

        try:
            run = self._heads.consistently(key, check)
        except DataError as error:
            return VerifyReport(key, (*findings, Finding("head", str(error))), 0, 0)
        return VerifyReport(key, (*findings, *run.findings), run.batches, run.events)

    def _check_orphans(self, key: ThreadKey, run: _Check) -> None:
        if self._storage.list_blobs(thread_scope(key), None, 1).names:
            run.found("head", "there are blobs of a journal but no head")

    def _read_cursors(self, key: ThreadKey) -> tuple[list[StoredCursor], list[Finding]]:
        found: list[StoredCursor] = []
        findings: list[Finding] = []
        for scope in self._cursors.scopes(key):
            try:
                cursor = self._cursors.read_scope(scope, key)
            except DataError as error:
                findings.append(Finding("cursor", f"{scope}: {error}"))
            else:
                found += [] if cursor is None else [cursor]
        return found, findings


def _check_cursors(head: StoredHead, cursors: list[StoredCursor], run: _Check) -> None:
    for cursor in cursors:
        state = cursor.state
        if state.journal_id == head.state.journal_id and state.acked_seq > head.state.last_seq:
            run.found(
                "cursor",
                f"the cursor of exporter {state.exporter!r} stands at {state.acked_seq}, behind the journal's end "
                f"{head.state.last_seq}",
                state.acked_seq,
            )


class _Check:
    """One run over one head.

    Attributes:
        findings: What is wrong.
        missing: The references whose blobs are not there, by name.
        batches: How many batches were checked.
        events: How many events were checked.
    """

    def __init__(self, storage: AtomicJournalStorage, key: ThreadKey, *, deep: bool) -> None:
        self.findings: list[Finding] = []
        self.missing: dict[str, Reference] = {}
        self.batches = 0
        self.events = 0
        self._reader = JournalReader(storage, key)
        self._key = key
        self._deep = deep
        self._at: int | None = None
        self._chain: str | None = None
        self._receipts: dict[int, Receipt] = {}

    def found(self, what: str, detail: str, seq: int | None = None) -> None:
        """Note a finding."""
        self.findings.append(Finding(what, detail, seq))

    def journal(self, head: StoredHead) -> None:
        """Check all that a head refers to."""
        state = head.state
        self._receipts = {receipt.first_seq: receipt for receipt in head.receipts_kept()}
        if state.checkpoint_seq is not None and not 1 <= state.checkpoint_seq <= state.last_seq:
            self.found("head", f"the checkpoint {state.checkpoint_seq} is outside the journal", state.checkpoint_seq)
        if self._deep:
            self._chain = CHAIN_START if state.first_seq == 1 else None
            self._at = 1 if state.first_seq == 1 else None
            for level in range(len(head.levels) - 1, -1, -1):
                self._row(head.levels[level], level, state.first_seq)
        elif not head.tail and head.levels and head.levels[0]:
            self._row(head.levels[0][-1:], 0, state.first_seq)
        try:
            tail = head.tail_lines()
        except JournalCorrupt as error:
            self.found("tail", str(error))
            return
        self._lines([line for line in tail if line.last >= state.first_seq])
        if self._deep and self._at is None and state.first_seq <= state.last_seq:
            self.found("contiguity", f"no batch is there from seq {state.first_seq} on", state.first_seq)
        if self._at is not None and self._at != state.last_seq + 1:
            self.found("contiguity", f"the head ends at {state.last_seq}, its batches at {self._at - 1}", self._at)
        if self._chain is not None and self._chain != state.chain:
            self.found("chain", f"the head has the chain digest {state.chain}, its batches have {self._chain}")

    def _row(self, row: tuple[Reference, ...], level: int, low: int) -> None:
        for reference in row:
            if reference.last < low:
                continue
            try:
                if level:
                    children = self._reader.tree.children(reference)
                else:
                    lines = self._reader.segment(reference)
                    self._lines([line for line in lines if line.last >= low])
                    continue
            except BlobMissing as error:
                self.missing[error.reference.name] = error.reference
                self.found("segment", str(lost(error, JournalCorrupt, self._key.name)), reference.first)
            except DataError as error:
                self.found(error.what or "segment", str(error), reference.first)
            else:
                self._row(children, level - 1, low)
                continue
            self._at, self._chain = reference.last + 1, None

    def _lines(self, lines: list[BatchLine]) -> None:
        for line in lines:
            if self._at is not None and line.first != self._at:
                self.found("contiguity", f"a batch starts at {line.first}, not at {self._at}", line.first)
                self._chain = None
            self._line(line)
            self._at = line.last + 1
            self.batches += 1
            self.events += line.last - line.first + 1

    def _line(self, line: BatchLine) -> None:
        body = bytes(line.body)
        found = digest(body)
        if found != line.digest:
            self.found("batch", f"the batch's body has digest {found}, not {line.digest}", line.first)
        try:
            _, events = decode_events(body, line.first)
        except JournalCorrupt as error:
            self.found("batch", str(error), line.first)
        else:
            if len(events) != line.last - line.first + 1:
                self.found("batch", f"the batch has {len(events)} events, not up to {line.last}", line.first)
        if self._chain is not None:
            self._chain = chain_next(self._chain, line.digest, line.first, line.last, line.epoch)
            if self._chain != line.chain:
                self.found("chain", f"the chain digest is {line.chain}, not {self._chain}", line.first)
        self._chain = line.chain
        receipt = self._receipts.get(line.first)
        if receipt is not None and (receipt.last_seq, receipt.digest) != (line.last, line.digest):
            self.found("receipt", "the receipt does not match the batch", line.first)
