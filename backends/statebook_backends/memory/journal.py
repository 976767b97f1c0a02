"""ThreadJournalStore in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, Literal

from statebook.capabilities import Capabilities
from statebook.codec import decode_event_ids, decode_wanted
from statebook.errors import JournalNotFound, StatebookError
from statebook.ids import new_local_nonce, new_nonce
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope, check_id
from statebook.model import (
    ANY,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    ExportCursor,
    JournalHead,
    Receipt,
    RecordedEvent,
    ThreadPage,
    VerifyReport,
    WriterClaim,
    check_page,
    check_seq,
)
from statebook.plan import (
    Commit,
    Done,
    Refuse,
    admits,
    check_read,
    extended,
    fenced,
    plan_append,
    plan_claim,
    plan_delete,
    plan_heartbeat,
    plan_purge,
    plan_release,
    plan_settle,
)
from statebook.plan_cursors import plan_advance_cursor, plan_open_cursor, plan_reset_cursor, plan_trim
from statebook.records import CursorState, FrozenBatch, HeadState, freeze
from statebook_backends.memory.options import MemoryOptions
from statebook_backends.memory.registry import SHARED
from statebook_backends.memory.store import CAPABILITIES, Journal, MemoryData, closed
from statebook_backends.memory.verify import verify_journal

_LIMITS: Final = CAPABILITIES.limits


class MemoryThreadJournalStore(ThreadJournalStore):
    """Journals in dictionaries; each call is judged and applied under the lock (CLAIM-2, APPEND-2)."""

    def __init__(
        self,
        options: MemoryOptions,
        *,
        new_nonce: Callable[[], str] = new_nonce,
        new_write_nonce: Callable[[], str] = new_local_nonce,
    ) -> None:
        """Open the store.

        Args:
            options: Name and namespace.
            new_nonce: Where the nonces of claims and cursors, and journal ids, come from.
            new_write_nonce: Where the nonces of appends come from.
        """
        self._options = options
        self._new_nonce = new_nonce
        self._new_write_nonce = new_write_nonce
        self._data: MemoryData | None = SHARED.enter(options.name, options.namespace)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    # ------------------------------------------------------------------------------------------------------ writers

    def head(self, key: ThreadKey) -> JournalHead | None:
        data = self._open()
        with data.lock:
            head = _head(data, key)
        return None if head is None else head.public()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        check_id(writer_id, "writer_id")
        data = self._open()
        new_nonce = self._new_nonce
        with data.lock:
            journal = data.journals.get(key)
            decision = plan_claim(
                None if journal is None else journal.head,
                key,
                writer_id,
                replacing,
                nonce=new_nonce(),
                claim_nonce=new_nonce(),
                journal_id=new_nonce(),
            )
            if isinstance(decision, Refuse):
                raise decision.error
            head = decision.state
            if journal is None or journal.head.journal_id != head.journal_id:
                data.journals[key] = Journal(head)
                data.threads.add(key.name, key)
            else:
                journal.head = head
            return head.granted()

    def heartbeat(self, claim: WriterClaim) -> None:
        data = self._open()
        with data.lock:
            _apply(data, claim.key, plan_heartbeat(_head(data, claim.key), claim, nonce=self._new_nonce()))

    def release(self, claim: WriterClaim) -> None:
        data = self._open()
        with data.lock:
            decision = plan_release(_head(data, claim.key), claim, nonce=self._new_nonce())
            if not isinstance(decision, Done):
                _apply(data, claim.key, decision)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        check_seq(base_seq, "base_seq")
        data = self._open()
        frozen = freeze(batch, _LIMITS, claim.key)
        with data.lock:
            outcome = self._append(data, claim, frozen, base_seq)
        if isinstance(outcome, StatebookError):
            raise outcome
        return outcome

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        given = tuple(requests)
        _LIMITS.check("group_batches_max", len(given))
        for request in given:
            check_seq(request.base_seq, "base_seq")
        data = self._open()
        frozen = [_frozen(request) for request in given]
        with data.lock:
            return tuple(
                batch
                if isinstance(batch, StatebookError)
                else self._append(data, request.claim, batch, request.base_seq)
                for request, batch in zip(given, frozen, strict=True)
            )

    def _append(self, data: MemoryData, claim: WriterClaim, batch: FrozenBatch, base_seq: int) -> AppendOutcome:
        """Judge a batch, and take it up where it may be; under the lock."""
        journal = data.journals.get(claim.key)
        if journal is None:
            return fenced(None, claim)
        head = journal.head
        placed = journal.receipts.get(batch.batch_id)
        overlap = journal.window.overlap(batch.event_ids)
        if placed is None and overlap is None and admits(head, claim, base_seq):
            return journal.take_up(batch, extended(head, batch, self._new_write_nonce()))
        if overlap is None and base_seq < head.last_seq:
            overlap = _overlap_at(journal, batch, base_seq)
        decision = plan_append(
            head, claim, batch, base_seq, placed=placed, overlap=overlap, nonce=self._new_write_nonce()
        )
        if isinstance(decision, Commit):
            return journal.take_up(batch, decision.state)
        return decision.answer if isinstance(decision, Done) else decision.error

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        check_id(batch_id, "batch_id")
        check_seq(base_seq, "base_seq")
        data = self._open()
        with data.lock:
            journal = data.journals.get(claim.key)
            decision = plan_settle(
                None if journal is None else journal.head,
                claim,
                base_seq,
                placed=None if journal is None else journal.receipts.get(batch_id),
                nonce=self._new_nonce(),
            )
            if isinstance(decision, Done):
                return decision.answer
            _apply(data, claim.key, decision)
            return None

    # ------------------------------------------------------------------------------------------------------ readers

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        check_seq(seq)
        check_page(limit)
        data = self._open()
        with data.lock:
            journal = data.journals.get(key)
            head = None if journal is None else journal.head
            wrong = check_read(head, key, seq)
            if wrong is not None:
                raise wrong
            if journal is None or head is None:
                return EventPage((), has_more=False, last_seq=0)
            start = bisect_right(journal.lasts, seq)
            stop = bisect_left(journal.lasts, seq + limit, lo=start) + 1
            batches = journal.batches[start:stop]
        events: list[RecordedEvent] = []
        for batch in batches:
            events += decode_wanted(batch.body, batch.receipt.first_seq, seq + 1, seq + limit)[2]
        page = tuple(events)
        return EventPage(page, has_more=seq + len(page) < head.last_seq, last_seq=head.last_seq)

    # ------------------------------------------------------------------------------------------------------ cursors

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        check_id(exporter, "exporter")
        data = self._open()
        with data.lock:
            record = data.cursors.get(key, {}).get(exporter)
            decision = plan_open_cursor(_head(data, key), record, key, exporter, nonce=self._new_nonce())
            return _set_cursor(data, decision)

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        check_seq(to_seq, "to_seq")
        data = self._open()
        with data.lock:
            record = data.cursors.get(cursor.key, {}).get(cursor.exporter)
            decision = plan_advance_cursor(_head(data, cursor.key), record, cursor, to_seq)
            return decision.answer if isinstance(decision, Done) else _set_cursor(data, decision)

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        check_id(exporter, "exporter")
        check_seq(to_seq, "to_seq")
        check_seq(expected_version, "expected_version")
        data = self._open()
        with data.lock:
            record = data.cursors.get(key, {}).get(exporter)
            decision = plan_reset_cursor(
                _head(data, key), record, key, exporter, to_seq, expected_version, nonce=self._new_nonce()
            )
            return _set_cursor(data, decision)

    # -------------------------------------------------------------------------------------------------- maintenance

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        check_page(limit)
        if after is not None and not scope.covers(after):
            raise ValueError("after must be a thread inside the scope that is listed")
        data = self._open()
        with data.lock:
            return ThreadPage(*data.threads.page(scope.prefix, None if after is None else after.name, limit))

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        check_seq(before_seq, "before_seq")
        data = self._open()
        with data.lock:
            cursors = data.cursors.get(key, {}).values()
            decision = plan_trim(_head(data, key), key, before_seq, cursors, nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            _apply(data, key, decision)
            journal = data.journals[key]
            gone = bisect_right(journal.lasts, journal.head.first_seq - 1)
            del journal.batches[:gone], journal.lasts[:gone]
            public = journal.head.public()
        if public is None:
            raise JournalNotFound("there is no journal to trim", key=key.name)
        return public

    def delete(self, key: ThreadKey) -> bool:
        data = self._open()
        with data.lock:
            decision = plan_delete(_head(data, key), nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            data.journals[key] = Journal(decision.state)
            data.threads.discard(key.name)
            return True

    def purge(self, key: ThreadKey) -> bool:
        data = self._open()
        with data.lock:
            decision = plan_purge(_head(data, key), key)
            if isinstance(decision, Refuse):
                raise decision.error
            if isinstance(decision, Done):
                return decision.answer
            del data.journals[key]
            data.cursors.pop(key, None)
            return True

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        data = self._open()
        with data.lock:
            journal = data.journals.get(key)
            if journal is None:
                return VerifyReport(key, (), 0, 0)
            head = journal.head
            batches = tuple(journal.batches if deep else journal.batches[-1:])
            cursors = tuple(data.cursors.get(key, {}).values())
        return verify_journal(head, batches, cursors)

    def close(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            SHARED.leave(self._options.name, self._options.namespace)

    def _open(self) -> MemoryData:
        data = self._data
        if data is None:
            raise closed()
        return data


def _head(data: MemoryData, key: ThreadKey) -> HeadState | None:
    journal = data.journals.get(key)
    return None if journal is None else journal.head


def _apply(data: MemoryData, key: ThreadKey, decision: Commit[HeadState] | Refuse) -> None:
    """Set the head of a journal that is there, or raise the refusal; under the lock."""
    if isinstance(decision, Refuse):
        raise decision.error
    data.journals[key].head = decision.state


def _set_cursor(data: MemoryData, decision: Commit[CursorState] | Refuse) -> ExportCursor:
    """Set a cursor's record, or raise the refusal; under the lock."""
    if isinstance(decision, Refuse):
        raise decision.error
    record = decision.state
    data.cursors.setdefault(record.key, {})[record.exporter] = record
    return record.opened()


def _frozen(request: AppendRequest) -> FrozenBatch | StatebookError:
    try:
        return freeze(request.batch, _LIMITS, request.claim.key)
    except StatebookError as error:
        return error


def _overlap_at(journal: Journal, batch: FrozenBatch, base_seq: int) -> str | None:
    """The first event id of the batch that is in the stored batch which starts right behind its base, or None."""
    place = bisect_right(journal.lasts, base_seq)
    if place == len(journal.batches) or journal.batches[place].receipt.first_seq != base_seq + 1:
        return None
    _, there = decode_event_ids(journal.batches[place].body)
    return next((event_id for event_id in batch.event_ids if event_id in there), None)
