"""The check of a stored journal and its cursors: every finding is reported, nothing raises (FORMAT-3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statebook.codec import CHAIN_START
from statebook.errors import DataError, JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import Finding, VerifyReport
from statebook.records import HeadState, JournalState
from statebook_backends.redis.batches import StoredBatch, check_link, entries_of
from statebook_backends.redis.cursors import cursor_from
from statebook_backends.redis.heads import ids_of
from statebook_backends.redis.layout import ThreadKeys
from statebook_backends.redis.reading import Thread, changing, read_newest, read_thread
from statebook_backends.redis.resp import fields_of
from statebook_backends.redis.scripts import script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client

FINDINGS_MAX: Final = 1_000
"""How many findings are reported at most; more say nothing new."""

_NEWEST_EVENTS: Final = 1_000
_EVENTS_A_READ: Final = 1_000
_ENOUGH_BYTES: Final = b"16777216"
_ROUNDS_MAX: Final = 16


def verify_journal(client: Client, key: ThreadKey, *, deep: bool) -> VerifyReport:
    """Report everything that is wrong with a journal.

    It is read in pages; where it was trimmed, deleted or replaced between two of them, it is read again.

    Args:
        client: The client.
        key: The thread.
        deep: Check every batch and the whole chain, not only the newest batches.

    Returns:
        The findings.

    Raises:
        BackendUnavailable: There is no answer.
    """
    keys = client.layout.thread(key)
    for _ in range(_ROUNDS_MAX):
        try:
            thread = read_thread(client, keys, key)
        except DataError as error:
            return VerifyReport(key, (Finding(error.what or "head", error.message),), 0, 0)
        head = thread.head
        if head is None:
            return VerifyReport(key, (), 0, 0)
        walk = _Walk(head)
        if head.state is JournalState.OPEN:
            _walk(client, keys, head, walk, deep=deep)
        findings = [*walk.findings, *_cursor_findings(keys, key, thread, head)]
        if findings and _has_changed(client, keys, key, head):
            continue
        return VerifyReport(key, tuple(findings[:FINDINGS_MAX]), walk.batches, walk.events)
    raise changing(keys.name, client.backend)


def _has_changed(client: Client, keys: ThreadKeys, key: ThreadKey, head: HeadState) -> bool:
    """Tell whether a journal was trimmed or replaced since a head of it was read."""
    try:
        now = read_thread(client, keys, key).head
    except DataError:
        return False
    return now is None or (now.journal_id, now.first_seq, now.state) != (head.journal_id, head.first_seq, head.state)


class _Walk:
    """A walk along the batches of a head, oldest first."""

    def __init__(self, head: HeadState) -> None:
        self.findings: list[Finding] = []
        self.batches = 0
        self.events = 0
        self.last = 0
        self._head = head
        self._before: StoredBatch | None = None

    def step(self, batch: StoredBatch) -> None:
        """Check a batch by itself, its place and its link of the chain."""
        head, first, before = self._head, batch.meta.first_seq, self._before
        try:
            batch.event_ids(head)
        except JournalCorrupt as error:
            self.find("batch", error.message, first)
        if before is not None and first != before.last_seq + 1:
            self.find("batch", f"there is a gap behind seq {before.last_seq}", before.last_seq + 1)
        if before is not None or first == 1:
            try:
                check_link(head, CHAIN_START if before is None else before.meta.chain, batch, head.chain)
            except JournalCorrupt:
                self.find("chain", "the chain is broken at the batch", first)
        self._before = batch
        self.last = batch.last_seq
        self.batches += 1
        if batch.last_seq >= head.first_seq:
            self.events += batch.last_seq - max(first, head.first_seq) + 1

    def begin(self, seq: int) -> None:
        """Check that the walk begins where events are to be."""
        if self._before is not None and self._before.meta.first_seq > seq:
            self.find("batch", "the oldest batches are missing", seq)

    def end(self) -> None:
        """Check that the walk ended where the head says."""
        head, last = self._head, self._before
        if last is None:
            if head.last_seq >= head.first_seq:
                self.find("batch", "the newest batches are missing", head.last_seq)
        elif (last.last_seq, last.meta.chain) != (head.last_seq, head.chain):
            self.find("chain", "the last batch is not the one that the head names", last.meta.first_seq)

    def find(self, what: str, detail: str, seq: int | None) -> None:
        """Take up a finding."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(what, detail, seq))


def _walk(client: Client, keys: ThreadKeys, head: HeadState, walk: _Walk, *, deep: bool) -> None:
    start = max(0, head.first_seq - 1, 0 if deep else head.last_seq - _NEWEST_EVENTS)
    try:
        read_newest(client, keys, head.key)  # the window, stubs among it
    except DataError as error:
        walk.find(error.what or "batch", error.message, None)
    after = start
    while after < head.last_seq:
        to = min(after + _EVENTS_A_READ, head.last_seq)
        call = script("read", 2).call(2, keys.packed, b"%d" % after, b"%d" % to, _ENOUGH_BYTES)
        reply = client.read(keys.slot, call, JournalCorrupt, keys.name)
        if not isinstance(reply, list) or len(reply) != 3:
            break
        if fields_of(reply[0]).get(b"key") != ids_of(head.key):
            break
        first = walk.batches == 0
        try:
            for batch in entries_of(head, reply[1], reply[2]):
                if batch.last_seq <= head.last_seq:
                    walk.step(batch)
                    if first:
                        walk.begin(start + 1)
                        first = False
        except JournalCorrupt as error:
            walk.find("batch", error.message, after + 1)
        if walk.last <= after:
            walk.find("batch", f"no batch can be read behind seq {after}", after + 1)
            break
        after = walk.last
    walk.end()


def _cursor_findings(keys: ThreadKeys, key: ThreadKey, thread: Thread, head: HeadState) -> list[Finding]:
    findings: list[Finding] = []
    for field, stored in thread.cursors.items():
        try:
            record = cursor_from(keys, key, field, stored)
        except DataError as error:
            findings.append(Finding("cursor", error.message))
            continue
        if record.journal_id != head.journal_id or head.state is JournalState.DELETED:
            continue
        if record.acked_seq > head.last_seq:
            findings.append(
                Finding("cursor", f"exporter {record.exporter!r} is ahead of the journal", record.acked_seq)
            )
    return findings
