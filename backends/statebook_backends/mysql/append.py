"""Appends in groups: one round trip where the heads are remembered, two where they are judged by their rows (APPEND).

By memory: a conditional UPDATE moves the head that was judged, an INSERT takes the batch only where that UPDATE has met
the row, both in one transaction and one request. The condition is the fence (CLAIM-2): a head that has changed since is
not met, nothing is written for it, and the append is judged again under the lock of its row. Heads are locked in the
order of their names, so that groups never deadlock over them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StatebookError
from statebook.model import Receipt, WriterClaim
from statebook.plan import Commit, Done, admits, extended, fenced, plan_append, receipt_of
from statebook.records import FrozenBatch, HeadState, JournalState
from statebook.window import WINDOW_BATCHES
from statebook_backends.mysql.batches import BEHIND, BY_ID, NEWEST, event_ids_behind, receipt_by_id, window_of
from statebook_backends.mysql.errors import NULL_REFUSED, Failure, classify
from statebook_backends.mysql.heads import LOCK_HEAD, HeadCache, KnownHead, head_of, lost_head, seal_head
from statebook_backends.mysql.sql import Row, Sql, literal, quoted
from statebook_backends.mysql.transactions import Failed, Runner, Transaction

# Filled in with `%`, since nothing is rendered more often: numbers as they are, all else as literals.
_ADVANCE: Final = (
    "UPDATE ~journal SET generation = %d, nonce = %s, last_seq = %d, checkpoint_seq = %s, chain = %s, seal = %s WHERE "
    "jid = %d AND nonce = %s AND generation = %d AND seal = %s AND last_seq = %d AND epoch = %d AND claim_nonce = %s"
)
# Behind the first of a group: where one head is another one, no later one is moved.
_AS_THE_LAST: Final = b" AND ROW_COUNT() = 1"
# The nonce is fresh, so that it is in the row only where the UPDATE before has put it there.
_INSERT: Final = (
    "INSERT INTO ~batch (jid, first_seq, last_seq, batch_id, epoch, digest, chain, body) "
    "SELECT jid, %b%b FROM ~journal WHERE jid = %d AND nonce = %b"
)

# What costs the server least: values, and no look at the head. Where the UPDATE right before has met no row, the column
# that cannot be NULL makes this an error, behind which the COMMIT is not reached.
_INSERT_WHERE_MET: Final = (
    "INSERT INTO ~batch (jid, first_seq, last_seq, batch_id, epoch, digest, chain, body) "
    "VALUES (IF(ROW_COUNT() = 1, %d, NULL), %b%b)"
)
_COLUMNS: Final = "%d, %d, %s, %d, %s, %s, "
_JOINED_BYTES_MAX: Final = 1_048_576
"""Up to so many bytes of bodies a group inserts its rows by one statement."""


class Append:
    """One append.

    Attributes:
        claim: The writer's claim.
        batch: The batch.
        base_seq: The base.
        answer: The receipt, once it is committed.
        error: Why it was refused, or what went wrong.
    """

    __slots__ = ("answer", "base_seq", "batch", "claim", "error")

    def __init__(self, claim: WriterClaim, batch: FrozenBatch, base_seq: int) -> None:
        self.claim = claim
        self.batch = batch
        self.base_seq = base_seq
        self.answer: Receipt | None = None
        self.error: StatebookError | None = None

    def unknown(self, cause: BaseException | None = None) -> None:
        """Answer that it was perhaps committed; the error carries what `settle` needs (ERR-2)."""
        self.answer = None
        self.error = OutcomeUnknown(
            "the server did not answer the commit, so that it is not known whether it happened; send the batch again, "
            "or settle it",
            batch_id=self.batch.batch_id,
            base_seq=self.base_seq,
            key=self.claim.key.name,
            backend="mysql",
        )
        self.error.__cause__ = cause

    @property
    def name(self) -> bytes:
        """The name of the thread."""
        return self.claim.key.name.encode()

    @property
    def result(self) -> Receipt | StatebookError:
        """The receipt, or the error."""
        if self.error is not None:
            return self.error
        if self.answer is not None:
            return self.answer
        raise AssertionError("an append has neither an answer nor an error")


class _Planned:
    """An append that may commit, and the writes that it takes."""

    __slots__ = ("before", "jid", "new", "operation", "receipt", "seal", "seal_before")

    def __init__(self, operation: Append, known: KnownHead, new: HeadState) -> None:
        self.operation = operation
        self.jid = known.jid
        self.before = known.head
        self.seal_before = known.seal
        self.new = new
        self.seal = seal_head(known.fixed, new)
        self.receipt = receipt_of(new, operation.batch)

    def advance(self, text: str) -> bytes:
        """The UPDATE: `_ADVANCE`, with its table named."""
        before, new = self.before, self.new
        checkpoint = "NULL" if new.checkpoint_seq is None else new.checkpoint_seq
        return (
            text
            % (
                *(new.generation, quoted(new.nonce), new.last_seq, checkpoint, quoted(new.chain), quoted(self.seal)),
                *(self.jid, quoted(before.nonce), before.generation, quoted(self.seal_before), before.last_seq),
                *(before.epoch, quoted(before.claim_nonce)),
            )
        ).encode()

    def row(self) -> tuple[bytes, bytes]:
        """The columns of the row to insert behind `jid`, and the last of them, which is the body."""
        new, batch = self.new, self.operation.batch
        columns = _COLUMNS % (
            *(self.before.last_seq + 1, new.last_seq, f"_binary{quoted(batch.batch_id)}", new.epoch),
            *(quoted(batch.digest), quoted(new.chain)),
        )
        return columns.encode(), literal(batch.body)


class Appender:
    """Commits groups of appends. Used by one group at a time."""

    def __init__(
        self, runner: Runner, sql: Sql, heads: HeadCache, namespace: bytes, new_nonce: Callable[[], str]
    ) -> None:
        """Keep the parts.

        Args:
            runner: Runs transactions.
            sql: Renders statements.
            heads: What is remembered.
            namespace: The namespace.
            new_nonce: Where nonces come from.
        """
        self._runner = runner
        self._sql = sql
        self._heads = heads
        self._namespace = namespace
        self._new_nonce = new_nonce

    def commit(self, group: Sequence[Append]) -> None:
        """Judge and commit a group; each has an answer or an error afterwards (APPEND-5).

        Args:
            group: In the order in which they were handed in.
        """
        rest = self._by_memory(group)
        if rest:
            self._by_rows(rest)

    # ---------------------------------------------------------------------------------------------------- by memory

    def _by_memory(self, group: Sequence[Append]) -> Sequence[Append]:
        """Commit what the remembered heads let in; give back what must be judged by rows."""
        planned: list[tuple[KnownHead, _Planned]] = []
        rest: list[Append] = []
        left: set[str] = set()
        for operation in group:
            journal_id = operation.claim.journal_id
            known = None if journal_id in left else self._heads.get(journal_id)
            plan = None if known is None else self._planned(operation, known)
            if known is None or plan is None:
                left.add(journal_id)
                rest.append(operation)
            else:
                planned.append((known, plan))
        if not planned:
            return group
        if len(planned) > 1:
            planned.sort(key=lambda pair: pair[1].operation.name)  # stable: a thread's own stay in their order
        try:
            write = self._write_one if len(planned) == 1 else _write_where_met
            counts = self._runner.transact(lambda tx: write(tx, planned), repeats_duplicates=False)
        except Failed as failed:
            self._forget(planned)
            if failed.failure.undecided:
                return self._all_unknown(planned, rest, failed.failure)
            if not failed.failure.dead:
                return group
            self._fail([pair[1].operation for pair in planned], failed.failure)
            return _behind_failed(planned, rest)
        except StatebookError as error:
            self._forget(planned)
            for operation in group:
                operation.error = copy.copy(error)
            return ()
        self._take_up(planned, counts)
        return rest

    def _write_one(self, tx: Transaction, planned: Sequence[tuple[KnownHead, _Planned]]) -> list[int]:
        """Hand in the writes of a single append, and commit; where its head is another one, judge it right there.

        Returns:
            The counts of its two writes; none where it was judged, so that it has an answer or an error.
        """
        ((known, plan),) = planned
        try:
            return _write_where_met(tx, planned)
        except Failure as failure:
            if failure.code != NULL_REFUSED:
                raise
        self._heads.drop(known.head.journal_id)
        tx.wrote = False  # the UPDATE has met no row and the INSERT was refused: nothing is to be taken back
        judge = _Judge(self._sql, self._heads, self._namespace, self._new_nonce, (plan.operation,))
        judge(tx)
        judge.remember()
        return []

    def _planned(self, operation: Append, known: KnownHead) -> _Planned | None:
        """Judge by a remembered head, and move it; None where it does not let the batch in at once."""
        head, window, batch = known.head, known.window, operation.batch
        if known.namespace != self._namespace or head.key != operation.claim.key:
            return None
        if window is None or window.chain != head.chain:
            return None
        if not window.is_new(batch.batch_id, batch.event_ids) or not admits(head, operation.claim, operation.base_seq):
            return None
        return _moved(operation, known, extended(head, batch, self._new_nonce()))

    def _take_up(self, planned: Sequence[tuple[KnownHead, _Planned]], counts: Sequence[int]) -> None:
        """Answer what was committed."""
        for place in range(0, len(counts), 2):
            known, plan = planned[place // 2]
            if tuple(counts[place : place + 2]) == (1, 1):
                plan.operation.answer = plan.receipt
            else:
                self._heads.drop(known.head.journal_id)
                plan.operation.unknown()

    def _forget(self, planned: Iterable[tuple[KnownHead, _Planned]]) -> None:
        for known, _ in planned:
            self._heads.drop(known.head.journal_id)

    def _all_unknown(
        self, planned: Sequence[tuple[KnownHead, _Planned]], rest: Sequence[Append], failure: Failure
    ) -> Sequence[Append]:
        for _, plan in planned:
            plan.operation.unknown(failure.__cause__)
        return _behind_failed(planned, rest)

    @staticmethod
    def _fail(operations: Iterable[Append], failure: Failure) -> None:
        for operation in operations:
            operation.answer = None
            operation.error = classify(failure, JournalCorrupt, operation.claim.key.name)

    # ------------------------------------------------------------------------------------------------------ by rows

    def _by_rows(self, group: Sequence[Append]) -> None:
        """Judge under the locks of the heads' rows, and commit."""
        judge = _Judge(self._sql, self._heads, self._namespace, self._new_nonce, group)
        try:
            self._runner.transact(judge, repeats_duplicates=False)
        except Failed as failed:
            judge.forget()
            if failed.failure.undecided:
                for operation in group:
                    operation.unknown(failed.failure.__cause__)
            elif failed.failure.dead or len(group) == 1:
                self._fail(group, failed.failure)
            else:
                self._one_by_one(group)
        except StatebookError as error:
            judge.forget()
            for operation in group:
                operation.answer = None
                operation.error = copy.copy(error)
        else:
            judge.remember()

    def _one_by_one(self, group: Sequence[Append]) -> None:
        """Run a group that was rolled back by themselves, so that only the guilty one fails."""
        failed: set[str] = set()
        for operation in group:
            if operation.claim.journal_id in failed:
                _not_tried(operation)
                continue
            self._by_rows((operation,))
            if isinstance(operation.error, (BackendUnavailable, OutcomeUnknown)):
                failed.add(operation.claim.journal_id)


class _Judge:
    """Judges a group by the rows, inside one transaction. May be called again after a rollback."""

    def __init__(
        self,
        sql: Sql,
        heads: HeadCache,
        namespace: bytes,
        new_nonce: Callable[[], str],
        group: Sequence[Append],
    ) -> None:
        self._sql = sql
        self._heads = heads
        self._namespace = namespace
        self._new_nonce = new_nonce
        self._group = group
        self._names = sorted({operation.name for operation in group})
        self._known: dict[bytes, KnownHead | StatebookError | None] = {}

    def __call__(self, tx: Transaction) -> None:
        """Lock and read the heads and the evidence in one round trip, judge, and commit in a second one."""
        for operation in self._group:
            operation.answer = operation.error = None
        evidence = self._read(tx)
        planned: list[tuple[KnownHead, _Planned]] = []
        for operation, (by_id, behind) in zip(self._group, evidence, strict=True):
            try:
                pair = self._judged(tx, operation, by_id, behind)
            except StatebookError as refusal:
                operation.error = refusal
                continue
            if pair is not None:
                planned.append(pair)
        if planned:
            counts = _write_all(tx, planned)
            for place, (_, plan) in enumerate(planned):
                if tuple(counts[2 * place : 2 * place + 2]) != (1, 1):
                    plan.operation.unknown()

    def _read(self, tx: Transaction) -> list[tuple[tuple[Row, ...], tuple[Row, ...]]]:
        sql, namespace = self._sql, self._namespace
        statements = [sql(LOCK_HEAD, namespace, name) for name in self._names]
        unknown = [name for name in self._names if not self._has_window(name)]
        statements += [sql(NEWEST, namespace, name, WINDOW_BATCHES) for name in unknown]
        for operation in self._group:
            statements.append(sql(BY_ID, namespace, operation.name, operation.batch.batch_id.encode()))
            statements.append(sql(BEHIND, namespace, operation.name, operation.base_seq, 1))
        rows = [answer.rows for answer in tx.ask_all(statements)]
        start = len(self._names)
        newest = dict(zip(unknown, rows[start:], strict=False))
        keys = {operation.name: operation.claim.key for operation in self._group}
        for name, found in zip(self._names, rows, strict=False):
            try:
                if found:
                    known = head_of(found[0], namespace, keys[name])
                    if known.head.state is JournalState.OPEN and name in newest:
                        known.window = window_of(known, newest[name])
                    self._known[name] = known
                else:
                    self._known[name] = lost_head(tx, namespace, keys[name])
            except StatebookError as error:
                self._known[name] = error
        evidence = rows[start + len(unknown) :]
        return list(zip(evidence[::2], evidence[1::2], strict=True))

    def _has_window(self, name: bytes) -> bool:
        for operation in self._group:
            if operation.name == name:
                known = self._heads.get(operation.claim.journal_id)
                return known is not None and known.window is not None and known.window.chain == known.head.chain
        return False

    def _judged(
        self, tx: Transaction, operation: Append, by_id: tuple[Row, ...], behind: tuple[Row, ...]
    ) -> tuple[KnownHead, _Planned] | None:
        """Decide by the table of the contract; None where the answer is a receipt that was there."""
        claim, batch, base_seq = operation.claim, operation.batch, operation.base_seq
        known = self._known[operation.name]
        if isinstance(known, StatebookError):
            raise copy.copy(known)
        if known is None or known.head.state is JournalState.DELETED or known.head.journal_id != claim.journal_id:
            raise fenced(None if known is None else known.head, claim)
        head = known.head
        window = known.window
        if window is None:
            remembered = self._heads.get(claim.journal_id)
            window = None if remembered is None else remembered.window
            if window is None or window.chain != head.chain:
                window = window_of(known, tx.ask(NEWEST, self._namespace, operation.name, WINDOW_BATCHES))
            known.window = window
        overlap = window.overlap(batch.event_ids)
        placed = window.find(batch.batch_id) or receipt_by_id(known, by_id)
        if placed is None and overlap is None and base_seq < head.last_seq:
            there = frozenset(event_ids_behind(known, behind, base_seq))
            overlap = next((event_id for event_id in batch.event_ids if event_id in there), None)
        decision = plan_append(head, claim, batch, base_seq, placed=placed, overlap=overlap, nonce=self._new_nonce())
        if isinstance(decision, Done):
            operation.answer = decision.answer
            return None
        if not isinstance(decision, Commit):
            raise decision.error
        plan = _moved(operation, known, decision.state)
        operation.answer = plan.receipt
        return known, plan

    def remember(self) -> None:
        """Take up what was read and written, once it is committed."""
        for known in self._known.values():
            if isinstance(known, KnownHead) and known.head.state is JournalState.OPEN:
                self._heads.put(known)

    def forget(self) -> None:
        """Forget what was remembered of these journals."""
        for operation in self._group:
            self._heads.drop(operation.claim.journal_id)


# -------------------------------------------------------------------------------------------------------------- helpers


def _moved(operation: Append, known: KnownHead, new: HeadState) -> _Planned:
    """Move a head in memory behind a batch that it lets in."""
    plan = _Planned(operation, known, new)
    known.head, known.seal = new, plan.seal
    if known.window is not None:
        known.window.push(plan.receipt, operation.batch.event_ids, new.chain)
    return plan


def _write_all(tx: Transaction, planned: Sequence[tuple[KnownHead, _Planned]]) -> list[int]:
    """Hand in all writes of appends that were judged under the locks of their heads' rows, and commit.

    Returns:
        Two counts an append.
    """
    advance, insert = tx.sql.named(_ADVANCE).decode(), tx.sql.named(_INSERT)
    for _, plan in planned:
        tx.change_rendered(plan.advance(advance))
        tx.change_rendered(insert % (*plan.row(), plan.jid, quoted(plan.new.nonce).encode()))
    return tx.commit()


def _write_where_met(tx: Transaction, planned: Sequence[tuple[KnownHead, _Planned]]) -> list[int]:
    """Hand in all writes of appends that were judged by memory, and commit: a head that is another one fails them all.

    Returns:
        Two counts an append.
    """
    advance, insert = tx.sql.named(_ADVANCE).decode(), tx.sql.named(_INSERT_WHERE_MET)
    joined = len(planned) > 1 and sum([len(plan.operation.batch.body) for _, plan in planned]) <= _JOINED_BYTES_MAX
    if not joined:
        for _, plan in planned:
            tx.change_rendered(plan.advance(advance))
            tx.change_rendered(insert % (plan.jid, *plan.row()))
        return tx.commit()
    rows: list[bytes] = []
    for _, plan in planned:
        update = plan.advance(advance)
        tx.change_rendered(update + _AS_THE_LAST if rows else update)
        rows.append(b"(%d, %b%b)" % (plan.jid, *plan.row()) if rows else insert % (plan.jid, *plan.row()))
    tx.change_rendered(b", ".join(rows))
    *moved, inserted = tx.commit()
    return [count for met in moved for count in (met, 1 if inserted == len(planned) else 0)]


def _behind_failed(planned: Sequence[tuple[KnownHead, _Planned]], rest: Sequence[Append]) -> list[Append]:
    """What may still be tried: nothing of a thread whose earlier append was not committed (APPEND-4)."""
    failed = {plan.operation.claim.journal_id for _, plan in planned}
    tried: list[Append] = []
    for operation in rest:
        if operation.claim.journal_id in failed:
            _not_tried(operation)
        else:
            tried.append(operation)
    return tried


def _not_tried(operation: Append) -> None:
    operation.answer = None
    operation.error = BackendUnavailable(
        "an earlier append of this thread was not answered, so this one was not tried; nothing was applied",
        key=operation.claim.key.name,
        backend="mysql",
    )
