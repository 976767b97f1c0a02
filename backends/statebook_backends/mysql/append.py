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
from statebook.plan import Commit, Done, fenced, plan_append, receipt_of
from statebook.records import FrozenBatch, HeadState, JournalState
from statebook.window import WINDOW_BATCHES
from statebook_backends.mysql.batches import BEHIND, BY_ID, NEWEST, event_ids_behind, receipt_by_id, window_of
from statebook_backends.mysql.errors import NULL_REFUSED, Failure, classify
from statebook_backends.mysql.heads import LOCK_HEAD, HeadCache, KnownHead, head_of, lost_head, seal_head
from statebook_backends.mysql.sql import Row, Sql, literal
from statebook_backends.mysql.transactions import Failed, Runner, Transaction

# Filled in with `%`, since nothing is rendered more often: numbers as they are, all else as literals.
_ADVANCE: Final = (
    "UPDATE ~journal SET generation = %d, nonce = %b, last_seq = %d, checkpoint_seq = %b, chain = %b, seal = %b WHERE "
    "jid = %d AND nonce = %b AND generation = %d AND seal = %b AND last_seq = %d AND epoch = %d AND claim_nonce = %b"
)
# The nonce is fresh, so that it is in the row only where the UPDATE before has put it there.
_INSERT: Final = (
    "INSERT INTO ~batch (jid, first_seq, last_seq, batch_id, epoch, digest, chain, body) "
    "SELECT jid, %d, %d, %b, %d, %b, %b, %b FROM ~journal WHERE jid = %d AND nonce = %b"
)

# What costs the server least: values, and no look at the head. Where the UPDATE right before has met no row, the column
# that cannot be NULL makes this an error, behind which the COMMIT is not reached.
_INSERT_WHERE_MET: Final = (
    "INSERT INTO ~batch (jid, first_seq, last_seq, batch_id, epoch, digest, chain, body) "
    "VALUES (IF(ROW_COUNT() = 1, %d, NULL), %d, %d, %b, %d, %b, %b, %b)"
)


class Append:
    """One append.

    Attributes:
        claim: The writer's claim.
        batch: The batch.
        base_seq: The base.
        name: The name of the thread.
        answer: The receipt, once it is committed.
        error: Why it was refused, or what went wrong.
    """

    __slots__ = ("answer", "base_seq", "batch", "claim", "error", "name")

    def __init__(self, claim: WriterClaim, batch: FrozenBatch, base_seq: int) -> None:
        self.claim = claim
        self.batch = batch
        self.base_seq = base_seq
        self.name = claim.key.name.encode()
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
    def result(self) -> Receipt | StatebookError:
        """The receipt, or the error."""
        if self.error is not None:
            return self.error
        if self.answer is not None:
            return self.answer
        raise AssertionError("an append has neither an answer nor an error")


class _Planned:
    """An append that may commit, and the writes that it takes."""

    __slots__ = ("before", "new", "operation", "seal", "seal_before")

    def __init__(self, operation: Append, known: KnownHead, new: HeadState) -> None:
        self.operation = operation
        self.before = known.head
        self.seal_before = known.seal
        self.new = new
        self.seal = seal_head(known.fixed, new)

    def write(self, tx: Transaction, jid: int, advance: bytes, insert: bytes, *, met: bool = False) -> None:
        """Hand in the two changes: `_ADVANCE`, and `_INSERT` or `_INSERT_WHERE_MET`, with their tables named."""
        before, new, batch = self.before, self.new, self.operation.batch
        nonce, chain = literal(new.nonce), literal(new.chain)
        tx.change_rendered(
            advance
            % (
                *(new.generation, nonce, new.last_seq, literal(new.checkpoint_seq), chain, literal(self.seal)),
                *(jid, literal(before.nonce), before.generation, literal(self.seal_before), before.last_seq),
                *(before.epoch, literal(before.claim_nonce)),
            )
        )
        row = (
            *(before.last_seq + 1, new.last_seq, literal(batch.batch_id.encode()), new.epoch),
            *(literal(batch.digest), chain, literal(batch.body)),
        )
        tx.change_rendered(insert % ((jid, *row) if met else (*row, jid, nonce)))


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
            if len(planned) == 1:
                counts = self._runner.transact(lambda tx: self._write_one(tx, planned), repeats_duplicates=False)
            else:
                counts = self._runner.transact(lambda tx: _write_all(tx, planned, met=True), repeats_duplicates=False)
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
            return _write_all(tx, planned, met=True)
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
        if window.find(batch.batch_id) is not None or window.overlap(batch.event_ids) is not None:
            return None
        decision = plan_append(
            head, operation.claim, batch, operation.base_seq, placed=None, overlap=None, nonce=self._new_nonce()
        )
        if type(decision) is not Commit:
            return None
        return _moved(operation, known, decision.state)

    def _take_up(self, planned: Sequence[tuple[KnownHead, _Planned]], counts: Sequence[int]) -> None:
        """Answer what was committed."""
        for place in range(0, len(counts), 2):
            known, plan = planned[place // 2]
            if tuple(counts[place : place + 2]) == (1, 1):
                plan.operation.answer = receipt_of(plan.new, plan.operation.batch)
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
        operation.answer = receipt_of(plan.new, batch)
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
        known.window.push(receipt_of(new, operation.batch), operation.batch.event_ids, new.chain)
    return plan


def _write_all(tx: Transaction, planned: Sequence[tuple[KnownHead, _Planned]], *, met: bool = False) -> list[int]:
    """Hand in all writes, and commit.

    Args:
        tx: The transaction.
        planned: The appends.
        met: Whether a head that is another one is to fail the transaction, which costs the server less.

    Returns:
        Two counts an append.
    """
    advance, insert = tx.sql.named(_ADVANCE), tx.sql.named(_INSERT_WHERE_MET if met else _INSERT)
    for known, plan in planned:
        plan.write(tx, known.jid, advance, insert, met=met)
    return tx.commit()


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
