"""The check of a journal in memory: digests, places, chain and cursors (FORMAT-3)."""

from __future__ import annotations

from collections.abc import Sequence

from statebook.codec import CHAIN_START, chain_next, decode_events, digest
from statebook.errors import JournalCorrupt
from statebook.model import Finding, VerifyReport
from statebook.records import CursorState, HeadState, JournalState
from statebook_backends.memory.store import StoredBatch


def verify_journal(head: HeadState, batches: Sequence[StoredBatch], cursors: Sequence[CursorState]) -> VerifyReport:
    """Report everything that is wrong.

    Args:
        head: The head.
        batches: The newest batches of that head, in order; all of them for a deep check.
        cursors: The cursor records of the thread.

    Returns:
        The findings.
    """
    findings: list[Finding] = []
    events = 0
    before: StoredBatch | None = None
    for batch in batches:
        findings.extend(_check(batch, before))
        events += batch.receipt.last_seq - batch.receipt.first_seq + 1
        before = batch
    if before is not None and (before.receipt.last_seq, before.chain) != (head.last_seq, head.chain):
        findings.append(Finding("chain", "the last batch is not the one that the head names", before.receipt.first_seq))
    findings.extend(
        Finding("cursor", f"exporter {cursor.exporter!r} is ahead of the journal", cursor.acked_seq)
        for cursor in cursors
        if head.state is JournalState.OPEN and cursor.journal_id == head.journal_id and cursor.acked_seq > head.last_seq
    )
    return VerifyReport(head.key, tuple(findings), len(batches), events)


def _check(batch: StoredBatch, before: StoredBatch | None) -> Sequence[Finding]:
    receipt = batch.receipt
    findings: list[Finding] = []
    if digest(batch.body) != receipt.digest:
        findings.append(Finding("batch", "the body does not match its digest", receipt.first_seq))
    try:
        batch_id, events = decode_events(batch.body, receipt.first_seq)
    except JournalCorrupt as error:
        return [*findings, Finding("batch", error.message, receipt.first_seq)]
    if batch_id != receipt.batch_id or len(events) != receipt.last_seq - receipt.first_seq + 1:
        findings.append(Finding("batch", "the body is of another batch", receipt.first_seq))
    if before is not None and receipt.first_seq != before.receipt.last_seq + 1:
        findings.append(Finding("batch", "there is a gap before the batch", receipt.first_seq))
    if before is not None or receipt.first_seq == 1:
        chain = CHAIN_START if before is None else before.chain
        if chain_next(chain, receipt.digest, receipt.first_seq, receipt.last_seq, receipt.epoch) != batch.chain:
            findings.append(Finding("chain", "the chain is broken at the batch", receipt.first_seq))
    return findings
