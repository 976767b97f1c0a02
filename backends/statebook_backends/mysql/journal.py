"""ThreadJournalStore on MySQL and MariaDB: native rows, one transaction a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar, cast

from statebook.capabilities import Capabilities
from statebook.errors import JournalCorrupt, JournalNotFound, OutcomeUnknown, StatebookError
from statebook.ids import new_nonce
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
from statebook_backends.mysql.append import Append, Appender
from statebook_backends.mysql.batches import BY_ID, events_of, page_query, receipt_by_id, trim_batches
from statebook_backends.mysql.cursors import read_cursor, read_cursors, write_cursor
from statebook_backends.mysql.database import Database, Process
from statebook_backends.mysql.groups import Groups
from statebook_backends.mysql.heads import (
    IS_LOST,
    SELECT_HEAD,
    SHARE_HEAD,
    KnownHead,
    head_of,
    missing_head,
    read_head,
    unpacked,
    write_head,
)
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import Row
from statebook_backends.mysql.transactions import Transaction
from statebook_backends.mysql.verify import verify_journal

T = TypeVar("T")

_LIST: Final = (
    "SELECT name, user_id, agent_id, session_id, thread_id FROM ~journal WHERE namespace = ? AND name > ? "
    "AND name < ? AND state = 'open' ORDER BY name LIMIT ?"
)
_DELETE_BATCHES: Final = "DELETE FROM ~batch WHERE jid = ? LIMIT ?"
_DELETE_CURSORS: Final = "DELETE FROM ~cursor WHERE jid = ? LIMIT ?"
_DELETE_JOURNAL: Final = "DELETE FROM ~journal WHERE jid = ?"
_DELETE_THREAD: Final = "DELETE FROM ~thread WHERE jid = ?"
_EMPTY_PAGE: Final = EventPage((), has_more=False, last_seq=0)


class MysqlThreadJournalStore(ThreadJournalStore):
    """Journals in tables: head and batch move in one transaction, conditional on the head's row (CLAIM-2, APPEND-2).

    Appends that are handed in while a commit is under way share the next one (APPEND-5). Readers take no locks, and
    read in snapshots of their own (CLAIM-7).
    """

    def __init__(self, options: MysqlOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the store.

        Args:
            options: What to open.
            new_nonce: Where nonces and journal ids come from.

        Raises:
            InvalidConfiguration: The server, the user or the tables cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The tables are of another format.
            BackendUnavailable: The server does not answer.
        """
        self._database = Database(options)
        self._namespace = self._database.namespace
        self._new_nonce = new_nonce
        self._limits = self._database.capabilities.limits
        self._grouped: dict[int, Groups] = {}

    @property
    def capabilities(self) -> Capabilities:
        return self._database.capabilities

    @property
    def _groups(self) -> Groups:
        """The group commit of this process: the child of a fork has its own."""
        process = self._database.process
        groups = self._grouped.get(process.pid)
        if groups is None:
            # Setting a default is one step, so that all threads get the same.
            groups = self._grouped.setdefault(process.pid, self._groups_of(process))
        return groups

    def _groups_of(self, process: Process) -> Groups:
        appender = Appender(process.runner, self._database.sql, process.heads, self._namespace, self._new_nonce)
        options = self._database.options
        patience_s = 4 * (options.read_timeout_s + options.write_timeout_s + options.connect_timeout_s)
        return Groups(appender.commit, patience_s + options.pool_timeout_s)

    # ------------------------------------------------------------------------------------------------------ writers

    def head(self, key: ThreadKey) -> JournalHead | None:
        rows = self._database.ask(JournalCorrupt, key.name, SELECT_HEAD, self._namespace, key.name.encode())
        if rows:
            return head_of(rows[0], self._namespace, key).head.public()
        self._check_lost(key)
        return None

    def _check_lost(self, key: ThreadKey) -> None:
        """Where there was no head's row: raise where it was lost, in a snapshot of its own (FORMAT-1)."""
        name = key.name.encode()
        rows = self._database.ask(JournalCorrupt, key.name, IS_LOST, self._namespace, name, self._namespace, name)
        if rows[0][0] == 1:
            raise missing_head(key)

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        check_id(writer_id, "writer_id")
        claim_nonce = self._new_nonce()
        journal_id = self._new_nonce()

        def decide(tx: Transaction) -> HeadState:
            # A row that is not there is not locked: creators of different journals would wait for each other.
            known = read_head(tx, self._namespace, key, SELECT_HEAD)
            if known is not None:
                known = read_head(tx, self._namespace, key)
            decision = plan_claim(
                None if known is None else known.head,
                key,
                writer_id,
                replacing,
                nonce=self._new_nonce(),
                claim_nonce=claim_nonce,
                journal_id=journal_id,
            )
            return self._write(tx, known, decision)

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
        def decide(tx: Transaction) -> HeadState:
            known = read_head(tx, self._namespace, claim.key)
            head = None if known is None else known.head
            return self._write(tx, known, plan_heartbeat(head, claim, nonce=self._new_nonce()))

        self._run(decide, claim.key)

    def release(self, claim: WriterClaim) -> None:
        def decide(tx: Transaction) -> None:
            known = read_head(tx, self._namespace, claim.key)
            decision = plan_release(None if known is None else known.head, claim, nonce=self._new_nonce())
            if not isinstance(decision, Done):
                self._write(tx, known, decision)

        self._run(decide, claim.key)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        check_seq(base_seq, "base_seq")
        groups = self._groups
        operation = Append(claim, freeze(batch, self._limits, claim.key), base_seq)
        groups.run((operation,))
        outcome = operation.result
        if isinstance(outcome, StatebookError):
            raise outcome
        return outcome

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        given = tuple(requests)
        self._limits.check("group_batches_max", len(given))
        for request in given:
            check_seq(request.base_seq, "base_seq")
        groups = self._groups
        outcomes: list[StatebookError | Append] = []
        for request in given:
            try:
                frozen = freeze(request.batch, self._limits, request.claim.key)
            except StatebookError as error:
                outcomes.append(error)
            else:
                outcomes.append(Append(request.claim, frozen, request.base_seq))
        operations = [each for each in outcomes if isinstance(each, Append)]
        if operations:
            groups.run(operations)
        return tuple([each.result if isinstance(each, Append) else each for each in outcomes])

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        check_id(batch_id, "batch_id")
        check_seq(base_seq, "base_seq")

        def decide(tx: Transaction) -> Receipt | None:
            known = read_head(tx, self._namespace, claim.key)
            placed = None
            if known is not None and known.head.state is JournalState.OPEN:
                name = claim.key.name.encode()
                placed = receipt_by_id(known, tx.ask(BY_ID, self._namespace, name, batch_id.encode()))
            head = None if known is None else known.head
            decision = plan_settle(head, claim, base_seq, placed=placed, nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            self._write(tx, known, decision)
            return None

        return self._run(decide, claim.key)

    # ------------------------------------------------------------------------------------------------------ readers

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        check_seq(seq)
        check_page(limit)
        known, batches = self._page(key, seq, limit)
        wrong = check_read(None if known is None else known.head, key, seq)
        if wrong is not None:
            raise wrong
        if known is None or known.head.state is JournalState.DELETED:
            return _EMPTY_PAGE
        events = events_of(known, batches, seq, limit)
        last_seq = known.head.last_seq
        return EventPage(tuple(events), has_more=seq + len(events) < last_seq, last_seq=last_seq)

    def _page(self, key: ThreadKey, seq: int, limit: int) -> tuple[KnownHead | None, list[Row]]:
        """A head, and the rows of the batches behind a seq, in one snapshot."""
        name, numbers = key.name.encode(), self._database.process.numbers
        jid = numbers.get(name)
        while True:
            query = page_query(self._database.sql, self._namespace, name, jid, seq, limit)
            rows = self._database.read((query,), JournalCorrupt, key.name)[0].rows
            heads = [row for row in rows if row[1] is None]
            if not heads:
                self._check_lost(key)
                return None, []
            known = head_of(unpacked(cast("str", heads[0][0]), key), self._namespace, key)
            if jid is None or jid == known.jid:
                break
            jid = None  # the thread was purged and written again
        numbers.keep(name, known.jid)
        return known, [row for row in rows if row[1] is not None]

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
        def decide(tx: Transaction) -> ExportCursor:
            known = read_head(tx, self._namespace, key, SHARE_HEAD)
            record = None if known is None else read_cursor(tx, known.jid, key, exporter, locked=True)
            decision = plan(None if known is None else known.head, record)
            if isinstance(decision, Done):
                return decision.answer
            if isinstance(decision, Refuse) or known is None:
                raise _refusal(decision, key)
            write_cursor(tx, known.jid, record, decision.state)
            return decision.state.opened()

        return self._run(decide, key)

    # -------------------------------------------------------------------------------------------------- maintenance

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        check_page(limit)
        if after is not None and not scope.covers(after):
            raise ValueError("after must be a thread inside the scope that is listed")
        start = scope.prefix if after is None else after.name
        end = scope.prefix[:-1] + "0"  # the character behind "/"
        rows = self._database.ask(
            JournalCorrupt, scope.prefix, _LIST, self._namespace, start.encode(), end.encode(), limit + 1
        )
        threads: list[ThreadKey] = []
        for row in rows[:limit]:
            name, user_id, agent_id, session_id, thread_id = cast("tuple[bytes, str | None, str, str, str]", row)
            thread = ThreadKey(user_id, agent_id, session_id, thread_id)
            if thread.name.encode() != name:
                raise JournalCorrupt(
                    "a head stands under another thread's name",
                    what="head",
                    expected=name.decode(errors="replace"),
                    found=thread.name,
                    key=name.decode(errors="replace"),
                    backend="mysql",
                )
            threads.append(thread)
        return ThreadPage(tuple(threads), len(rows) > limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        check_seq(before_seq, "before_seq")

        def decide(tx: Transaction) -> JournalHead:
            known = read_head(tx, self._namespace, key)
            cursors = () if known is None else read_cursors(tx, known.jid, key)
            head = None if known is None else known.head
            decision = plan_trim(head, key, before_seq, cursors, nonce=self._new_nonce())
            if isinstance(decision, Done):
                return decision.answer
            public = self._write(tx, known, decision).public()
            if known is None or public is None:
                raise JournalNotFound("there is no journal to trim", key=key.name)
            trim_batches(tx, known.jid, public.first_seq)
            return public

        return self._run(decide, key)

    def delete(self, key: ThreadKey) -> bool:
        def decide(tx: Transaction) -> bool:
            known = read_head(tx, self._namespace, key)
            decision = plan_delete(None if known is None else known.head, nonce=self._new_nonce())
            if isinstance(decision, Done) or known is None:
                return False
            self._write(tx, known, decision)
            tx.change_many(_DELETE_BATCHES, known.jid)
            return True

        return self._run(decide, key)

    def purge(self, key: ThreadKey) -> bool:
        def decide(tx: Transaction) -> bool:
            known = read_head(tx, self._namespace, key)
            decision = plan_purge(None if known is None else known.head, key)
            if isinstance(decision, Refuse):
                raise decision.error
            if isinstance(decision, Done) or known is None:
                return False
            tx.change_many(_DELETE_BATCHES, known.jid)
            tx.change_many(_DELETE_CURSORS, known.jid)
            tx.change(_DELETE_JOURNAL, known.jid)
            tx.change(_DELETE_THREAD, known.jid)
            self._database.process.heads.drop(known.head.journal_id)
            return True

        return self._run(decide, key)

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        with self._database.reading(JournalCorrupt, key.name) as tx:
            return verify_journal(tx, self._namespace, key, deep=deep)

    def close(self) -> None:
        self._database.close()

    # ----------------------------------------------------------------------------------------------------- deciding

    def _run(self, decide: Callable[[Transaction], T], key: ThreadKey) -> T:
        return self._database.run(decide, JournalCorrupt, key.name)

    def _write(self, tx: Transaction, known: KnownHead | None, decision: Commit[HeadState] | Refuse) -> HeadState:
        """Write the head that was decided, or raise the refusal."""
        if isinstance(decision, Refuse):
            raise decision.error
        heads = self._database.process.heads
        if known is not None and known.head.journal_id != decision.state.journal_id:
            heads.drop(known.head.journal_id)
        # Remembered before the commit: where that fails, no row is met, and the head is read again.
        heads.put(write_head(tx, self._namespace, known, decision.state))
        return decision.state


def _refusal(decision: Commit[CursorState] | Refuse, key: ThreadKey) -> StatebookError:
    if isinstance(decision, Refuse):
        return decision.error
    return JournalNotFound("there is no journal to export", key=key.name)
