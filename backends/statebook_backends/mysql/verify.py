"""The check of a stored journal and its cursors: every finding is reported, nothing raises (FORMAT-3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from statebook.codec import CHAIN_START, chain_next
from statebook.errors import DataError, JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import Finding, VerifyReport
from statebook.records import HeadState, JournalState
from statebook_backends.mysql.batches import StoredBatch, batches_behind
from statebook_backends.mysql.cursors import read_cursor
from statebook_backends.mysql.heads import SELECT_HEAD, KnownHead, read_head

if TYPE_CHECKING:
    from statebook_backends.mysql.transactions import Transaction

FINDINGS_MAX: Final = 1_000
"""How many findings are reported at most; more say nothing new."""

_NEWEST_EVENTS: Final = 1_000
_NAMES: Final = "SELECT exporter FROM ~cursor WHERE jid = ? ORDER BY exporter"


def verify_journal(tx: Transaction, namespace: bytes, key: ThreadKey, *, deep: bool) -> VerifyReport:
    """Report everything that is wrong with a journal in one snapshot.

    Args:
        tx: A snapshot.
        namespace: The namespace.
        key: The thread.
        deep: Check every batch and the whole chain, not only the newest batches.

    Returns:
        The findings.
    """
    try:
        known = read_head(tx, namespace, key, SELECT_HEAD)
    except DataError as error:
        return VerifyReport(key, (Finding(error.what or "head", error.message),), 0, 0)
    if known is None:
        return VerifyReport(key, (), 0, 0)
    start = 0 if deep else max(0, known.head.first_seq - 1, known.head.last_seq - _NEWEST_EVENTS)
    walk = _Walk(known.head, start)
    for batch in batches_behind(tx, known, start):
        walk.step(batch)
    walk.end(anything_expected=known.head.last_seq > start)
    walk.findings.extend(_cursor_findings(tx, known, key))
    return VerifyReport(key, tuple(walk.findings[:FINDINGS_MAX]), walk.batches, walk.events)


class _Walk:
    """A walk along the batches of a head."""

    def __init__(self, head: HeadState, start: int) -> None:
        self.findings: list[Finding] = []
        self.batches = 0
        self.events = 0
        self._head = head
        self._start = start
        self._before: StoredBatch | None = None

    def step(self, batch: StoredBatch) -> None:
        """Check a batch by itself, its place and its link of the chain."""
        first = batch.first_seq
        try:
            batch.check(self._head)
        except JournalCorrupt as error:
            self._find("batch", error.message, first)
        before = self._before
        expected = self._start + 1 if before is None else before.last_seq + 1
        if first > expected or (before is not None and first < expected):
            self._find("batch", f"there is a gap behind seq {expected - 1}", expected)
        if before is not None or first == 1:
            chain = CHAIN_START if before is None else before.chain
            if chain_next(chain, batch.digest, first, batch.last_seq, batch.epoch) != batch.chain:
                self._find("chain", "the chain is broken at the batch", first)
        self._before = batch
        if batch.last_seq >= self._head.first_seq:
            self.batches += 1
            self.events += batch.last_seq - first + 1

    def end(self, *, anything_expected: bool) -> None:
        """Check that the walk ended where the head says."""
        head, last = self._head, self._before
        if last is None:
            if anything_expected:
                self._find("batch", "the newest batches are missing", head.last_seq)
        elif (last.last_seq, last.chain) != (head.last_seq, head.chain):
            self._find("chain", "the last batch is not the one that the head names", last.first_seq)

    def _find(self, what: str, detail: str, seq: int) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(what, detail, seq))


def _cursor_findings(tx: Transaction, known: KnownHead, key: ThreadKey) -> list[Finding]:
    findings: list[Finding] = []
    for (name,) in tx.ask(_NAMES, known.jid):
        exporter = cast(bytes, name).decode(errors="replace")
        try:
            record = read_cursor(tx, known.jid, key, exporter)
        except JournalCorrupt as error:
            findings.append(Finding("cursor", error.message))
            continue
        if record is None or record.journal_id != known.head.journal_id or known.head.state is JournalState.DELETED:
            continue
        if record.acked_seq > known.head.last_seq:
            findings.append(Finding("cursor", f"exporter {exporter!r} is ahead of the journal", record.acked_seq))
    return findings
