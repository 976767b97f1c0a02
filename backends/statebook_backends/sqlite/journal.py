"""ThreadJournalStore on SQLite: native rows, one transaction a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from statebook.capabilities import Capabilities
from statebook.contention import Rests
from statebook.errors import JournalCorrupt, JournalNotFound, OutcomeUnknown, StatebookError
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
    check_read,
    plan_claim,
    plan_delete,
    plan_heartbeat,
    plan_purge,
    plan_release,
    plan_settle,
)
from statebook.plan_cursors import plan_advance_cursor, plan_open_cursor, plan_reset_cursor, plan_trim
from statebook.records import CursorState, HeadState, JournalState, freeze
from statebook_backends.sqlite.append import Append
from statebook_backends.sqlite.batches import find_batch, read_events, trim_batches
from statebook_backends.sqlite.cursors import read_cursor, read_cursors, write_cursor
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.heads import HeadsRead, KnownHead, read_head, write_head
from statebook_backends.sqlite.options import SqliteOptions
from statebook_backends.sqlite.verify import verify_journal

if TYPE_CHECKING:
    from sqlite3 import Cursor

T = TypeVar("T")

_LIST: Final = (
    "SELECT name, user_id, agent_id, session_id, thread_id FROM journal WHERE namespace = ? AND name > ? "
    "AND name < ? AND state = 'open' ORDER BY name LIMIT ?"
)
_DELETE_BATCHES: Final = "DELETE FROM batch WHERE jid = ?"
_DELETE_CURSORS: Final = "DELETE FROM cursor WHERE jid = ?"
_DELETE_JOURNAL: Final = "DELETE FROM journal WHERE jid = ?"
_DELETE_THREAD: Final = "DELETE FROM thread WHERE jid = ?"
_EMPTY_PAGE: Final = EventPage((), has_more=False, last_seq=0)


class SqliteThreadJournalStore(ThreadJournalStore):
    """Journals in tables: head and batch move in one transaction under SQLite's write lock (CLAIM-2, APPEND-2).

    Batches that are handed in while a commit is under way share the next one (APPEND-5). Readers have connections of
    their own; the write-ahead log keeps them and the writer out of each other's way (CLAIM-7).
    """

    def __init__(
        self,
        options: SqliteOptions,
        *,
        new_nonce: Callable[[], str] = new_nonce,
        new_write_nonce: Callable[[], str] = new_local_nonce,
    ) -> None:
        """Open the store.

        Args:
            options: What to open.
            new_nonce: Where the nonces of claims and cursors, and journal ids, come from.
            new_write_nonce: Where the nonces of appends come from.

        Raises:
            InvalidConfiguration: The place or the file cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The file is of another format.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        self._session = Session(options)
        self._namespace = options.namespace
        self._new_nonce = new_nonce
        self._new_write_nonce = new_write_nonce
        self._limits = self._session.capabilities.limits
        self._heads = self._session.database.heads
        self._heads_read = HeadsRead()
        self._rests = Rests()  # SQLite's lock goes to whoever asks at the right moment

    @property
    def capabilities(self) -> Capabilities:
        return self._session.capabilities

    # ------------------------------------------------------------------------------------------------------ writers

    def head(self, key: ThreadKey) -> JournalHead | None:
        with self._session.database.readers.reading(JournalCorrupt, key.name) as cursor:
            known = read_head(cursor, self._namespace, key, self._heads_read)
        return None if known is None else known.head.public()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        check_id(writer_id, "writer_id")
        claim_nonce = self._new_nonce()
        journal_id = self._new_nonce()

        def decide(cursor: Cursor) -> HeadState:
            known = read_head(cursor, self._namespace, key)
            decision = plan_claim(
                None if known is None else known.head,
                key,
                writer_id,
                replacing,
                nonce=self._new_nonce(),
                claim_nonce=claim_nonce,
                journal_id=journal_id,
            )
            return self._write(cursor, known, decision)

        try:
            return self._run(decide, key).granted()
        except OutcomeUnknown as unknown:
            try:
                head = self.head(key)
            except StatebookError as error:
                raise unknown from error
            if head is None or head.claim is None or head.claim.nonce != claim_nonce:
                raise
            return WriterClaim(
                key, head.journal_id, writer_id, head.epoch, claim_nonce, head.last_seq, head.checkpoint_seq
            )

    def heartbeat(self, claim: WriterClaim) -> None:
        def decide(cursor: Cursor) -> HeadState:
            known = read_head(cursor, self._namespace, claim.key)
            head = None if known is None else known.head
            return self._write(cursor, known, plan_heartbeat(head, claim, nonce=self._new_nonce()))

        begun = self._rests.wait(claim.key.name)
        self._run(decide, claim.key)
        self._rests.wrote(claim.key.name, begun)

    def release(self, claim: WriterClaim) -> None:
        def decide(cursor: Cursor) -> None:
            known = read_head(cursor, self._namespace, claim.key)
            decision = plan_release(None if known is None else known.head, claim, nonce=self._new_nonce())
            if not isinstance(decision, Done):
                self._write(cursor, known, decision)

        self._run(decide, claim.key)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        check_seq(base_seq, "base_seq")
        database = self._session.database
        frozen = freeze(batch, self._limits, claim.key)
        operation = Append(self._heads, self._namespace, claim, frozen, base_seq, self._new_write_nonce)
        database.writer.run(operation)
        if operation.error is not None:
            raise operation.error
        return cast(Receipt, operation.answer)

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        given = tuple(requests)
        self._limits.check("group_batches_max", len(given))
        for request in given:
            check_seq(request.base_seq, "base_seq")
        database = self._session.database
        outcomes: list[AppendOutcome | Append] = []
        operations: list[Append] = []
        for request in given:
            try:
                frozen = freeze(request.batch, self._limits, request.claim.key)
            except StatebookError as error:
                outcomes.append(error)
                continue
            operation = Append(
                self._heads, self._namespace, request.claim, frozen, request.base_seq, self._new_write_nonce
            )
            outcomes.append(operation)
            operations.append(operation)
        if operations:
            database.writer.run_all(operations)
        return tuple([_outcome(each) if isinstance(each, Append) else each for each in outcomes])

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        check_id(batch_id, "batch_id")
        check_seq(base_seq, "base_seq")

        def decide(cursor: Cursor) -> Receipt | None:
            known = read_head(cursor, self._namespace, claim.key)
            placed = None
            if known is not None and known.head.state is JournalState.OPEN:
                placed = find_batch(cursor, known, batch_id)
            head = None if known is None else known.head
            decision = plan_settle(head, claim, base_seq, placed=placed, nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            self._write(cursor, known, decision)
            return None

        begun = self._rests.wait(claim.key.name)
        found = self._run(decide, claim.key)
        if found is None:
            self._rests.wrote(claim.key.name, begun)
        return found

    # ------------------------------------------------------------------------------------------------------ readers

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        check_seq(seq)
        check_page(limit)
        with self._session.database.readers.reading(JournalCorrupt, key.name) as cursor:
            known = read_head(cursor, self._namespace, key, self._heads_read)
            wrong = check_read(None if known is None else known.head, key, seq)
            if wrong is not None:
                raise wrong
            if known is None or known.head.state is JournalState.DELETED:
                return _EMPTY_PAGE
            events = read_events(cursor, known, seq, limit)
        last_seq = known.head.last_seq
        return EventPage(tuple(events), has_more=seq + len(events) < last_seq, last_seq=last_seq)

    # ------------------------------------------------------------------------------------------------------ cursors

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        check_id(exporter, "exporter")
        return self._move_cursor(
            key, exporter, lambda head, record: plan_open_cursor(head, record, key, exporter, nonce=self._new_nonce())
        )

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        check_seq(to_seq, "to_seq")
        return self._move_cursor(
            cursor.key, cursor.exporter, lambda head, record: plan_advance_cursor(head, record, cursor, to_seq)
        )

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        check_id(exporter, "exporter")
        check_seq(to_seq, "to_seq")
        check_seq(expected_version, "expected_version")
        return self._move_cursor(
            key,
            exporter,
            lambda head, record: plan_reset_cursor(
                head, record, key, exporter, to_seq, expected_version, nonce=self._new_nonce()
            ),
        )

    def _move_cursor(
        self,
        key: ThreadKey,
        exporter: str,
        plan: Callable[[HeadState | None, CursorState | None], Commit[CursorState] | Done[ExportCursor] | Refuse],
    ) -> ExportCursor:
        def decide(cursor: Cursor) -> ExportCursor:
            known = read_head(cursor, self._namespace, key)
            if known is None:
                decision = plan(None, None)
            else:
                decision = plan(known.head, read_cursor(cursor, known.jid, key, exporter))
            if isinstance(decision, Done):
                return decision.answer
            if isinstance(decision, Refuse) or known is None:
                raise _refusal(decision, key)
            write_cursor(cursor, known.jid, decision.state)
            return decision.state.opened()

        return self._run(decide, key)

    # -------------------------------------------------------------------------------------------------- maintenance

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        check_page(limit)
        if after is not None and not scope.covers(after):
            raise ValueError("after must be a thread inside the scope that is listed")
        start = scope.prefix if after is None else after.name
        with self._session.database.readers.reading(JournalCorrupt, scope.prefix) as cursor:
            end = scope.prefix[:-1] + "0"
            rows = cursor.execute(_LIST, (self._namespace, start, end, limit + 1)).fetchall()
        threads = [ThreadKey(*row[1:]) for row in rows[:limit]]
        for thread, row in zip(threads, rows, strict=False):
            if thread.name != row[0]:
                raise JournalCorrupt(
                    "a head stands under another thread's name",
                    what="head",
                    expected=row[0],
                    found=thread.name,
                    key=row[0],
                    backend="sqlite",
                )
        return ThreadPage(tuple(threads), len(rows) > limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        check_seq(before_seq, "before_seq")

        def decide(cursor: Cursor) -> JournalHead:
            known = read_head(cursor, self._namespace, key)
            cursors = () if known is None else tuple(read_cursors(cursor, known.jid, key))
            head = None if known is None else known.head
            decision = plan_trim(head, key, before_seq, cursors, nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            public = self._write(cursor, known, decision).public()
            if known is None or public is None:
                raise JournalNotFound("there is no journal to trim", key=key.name)
            trim_batches(cursor, known.jid, public.first_seq)
            return public

        begun = self._rests.wait(key.name)
        head = self._run(decide, key)
        self._rests.wrote(key.name, begun)
        return head

    def delete(self, key: ThreadKey) -> bool:
        def decide(cursor: Cursor) -> bool:
            known = read_head(cursor, self._namespace, key)
            decision = plan_delete(None if known is None else known.head, nonce=self._new_nonce())
            if isinstance(decision, Done) or known is None:
                return False
            self._write(cursor, known, decision)
            cursor.execute(_DELETE_BATCHES, (known.jid,))
            return True

        return self._run(decide, key)

    def purge(self, key: ThreadKey) -> bool:
        def decide(cursor: Cursor) -> bool:
            known = read_head(cursor, self._namespace, key)
            decision = plan_purge(None if known is None else known.head, key)
            if isinstance(decision, Refuse):
                raise decision.error
            if isinstance(decision, Done) or known is None:
                return False
            for statement in (_DELETE_BATCHES, _DELETE_CURSORS, _DELETE_JOURNAL, _DELETE_THREAD):
                cursor.execute(statement, (known.jid,))
            self._heads.drop(known.head.journal_id)
            return True

        return self._run(decide, key)

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        with self._session.database.readers.reading(JournalCorrupt, key.name) as cursor:
            return verify_journal(cursor, self._namespace, key, deep=deep)

    def close(self) -> None:
        self._session.close()

    # ----------------------------------------------------------------------------------------------------- deciding

    def _run(self, decide: Callable[[Cursor], T], key: ThreadKey) -> T:
        return self._session.run(decide, JournalCorrupt, key.name)

    def _write(self, cursor: Cursor, known: KnownHead | None, decision: Commit[HeadState] | Refuse) -> HeadState:
        """Write the head that was decided, or raise the refusal; inside the writer's transaction."""
        if isinstance(decision, Refuse):
            raise decision.error
        heads = self._heads
        if known is not None and known.head.journal_id != decision.state.journal_id:
            heads.drop(known.head.journal_id)
        heads.put(write_head(cursor, self._namespace, known, decision.state))
        return decision.state


def _outcome(operation: Append) -> AppendOutcome:
    return cast(Receipt, operation.answer) if operation.error is None else operation.error


def _refusal(decision: Commit[CursorState] | Refuse, key: ThreadKey) -> StatebookError:
    if isinstance(decision, Refuse):
        return decision.error
    return JournalNotFound("there is no journal to export", key=key.name)
