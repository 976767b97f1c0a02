"""The append as an operation: a conditional update and an insert where the head is remembered, else judged by rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from statebook.errors import DataError, JournalCorrupt, OutcomeUnknown
from statebook.model import WriterClaim
from statebook.plan import Commit, Done, admits, extended, fenced, plan_append, receipt_of
from statebook.records import FrozenBatch, JournalState
from statebook.window import Window
from statebook_backends.sqlite.batches import event_ids_behind, find_batch, load_window
from statebook_backends.sqlite.heads import HeadCache, KnownHead, read_head, seal_head
from statebook_backends.sqlite.writer import Operation

if TYPE_CHECKING:
    from sqlite3 import Cursor

# The head moves only where it is still the one that was judged: the fence is in the same step as the write (CLAIM-2).
_ADVANCE: Final = (
    "UPDATE journal SET generation = ?, nonce = ?, last_seq = ?, checkpoint_seq = ?, chain = ?, seal = ? WHERE jid = ? "
    "AND seal = ? AND nonce = ? AND generation = ? AND last_seq = ? AND epoch = ? AND claim_nonce = ?"
)
_RESTORE: Final = (
    "UPDATE journal SET generation = ?, nonce = ?, last_seq = ?, checkpoint_seq = ?, chain = ?, seal = ? WHERE jid = ?"
)
_INSERT: Final = (
    "INSERT INTO batch (jid, first_seq, last_seq, batch_id, epoch, digest, chain, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


class Append(Operation):
    """One append, judged and written inside the writer's transaction (APPEND)."""

    __slots__ = ("_base_seq", "_batch", "_claim", "_heads", "_namespace", "_new_nonce")

    def __init__(
        self,
        heads: HeadCache,
        namespace: str,
        claim: WriterClaim,
        batch: FrozenBatch,
        base_seq: int,
        new_nonce: Callable[[], str],
    ) -> None:
        self.size = len(batch.body)
        self.answer = None
        self.error = None
        self._heads = heads
        self._namespace = namespace
        self._claim = claim
        self._batch = batch
        self._base_seq = base_seq
        self._new_nonce = new_nonce

    @property
    def key(self) -> str:
        """The thread, for errors."""
        return self._claim.key.name

    @property
    def damage(self) -> type[DataError]:
        """The class for damage that it meets."""
        return JournalCorrupt

    def unknown(self) -> OutcomeUnknown:
        """The error for a commit that perhaps happened; carries what `settle` needs."""
        return OutcomeUnknown(
            "the commit failed in a way that does not tell whether it happened; send the batch again, or settle it",
            batch_id=self._batch.batch_id,
            base_seq=self._base_seq,
            key=self.key,
            backend="sqlite",
        )

    def apply(self, cursor: Cursor) -> None:
        """Judge by what is remembered where that commits; by the rows where it does not."""
        claim = self._claim
        known = self._heads.get(claim.journal_id)
        if known is not None and known.namespace == self._namespace:
            window, key = known.window, known.head.key
            if window is not None and (key is claim.key or key == claim.key) and self._commit(cursor, known, window):
                return
        self._judge(cursor)

    def _commit(self, cursor: Cursor, known: KnownHead, window: Window) -> bool:
        """Write where the remembered head is the stored one and lets the batch in; tell whether that was so."""
        batch, head = self._batch, known.head
        batch_id = batch.batch_id
        if not (admits(head, self._claim, self._base_seq) and window.is_new(batch_id, batch.event_ids)):
            return False
        new = extended(head, batch, self._new_nonce())
        last_seq, chain, jid = new.last_seq, new.chain, known.jid
        seal = seal_head(known.sealing, new)
        cursor.execute(
            _ADVANCE,
            (
                new.generation,
                new.nonce,
                last_seq,
                new.checkpoint_seq,
                chain,
                seal,
                jid,
                known.seal,
                head.nonce,
                head.generation,
                head.last_seq,
                head.epoch,
                head.claim_nonce,
            ),
        )
        if cursor.rowcount != 1:
            return False
        cursor.execute(
            _INSERT, (jid, head.last_seq + 1, last_seq, batch_id, new.epoch, batch.digest, chain, batch.body)
        )
        if cursor.rowcount != 1:
            # The id is that of a batch older than the window, or the place is taken: as if nothing had been written.
            cursor.execute(
                _RESTORE,
                (head.generation, head.nonce, head.last_seq, head.checkpoint_seq, head.chain, known.seal, jid),
            )
            return False
        known.head = new
        known.seal = seal
        self.answer = receipt = receipt_of(new, batch)
        window.push(receipt, batch.event_ids, chain)
        return True

    def _judge(self, cursor: Cursor) -> None:
        """Read head and evidence, and decide by the table of the contract."""
        claim, batch, base_seq = self._claim, self._batch, self._base_seq
        known = read_head(cursor, self._namespace, claim.key)
        if known is None or known.head.state is JournalState.DELETED or known.head.journal_id != claim.journal_id:
            raise fenced(None if known is None else known.head, claim)
        head = known.head
        self._heads.put(known)
        window = known.window
        if window is None:
            window = known.window = load_window(cursor, known)
            self._heads.put(known)
        overlap = window.overlap(batch.event_ids)
        placed = window.find(batch.batch_id) or find_batch(cursor, known, batch.batch_id)
        if placed is None and overlap is None and base_seq < head.last_seq:
            there = frozenset(event_ids_behind(cursor, known, base_seq))
            overlap = next((event_id for event_id in batch.event_ids if event_id in there), None)
        decision = plan_append(head, claim, batch, base_seq, placed=placed, overlap=overlap, nonce=self._new_nonce())
        if isinstance(decision, Done):
            self.answer = decision.answer
        elif not isinstance(decision, Commit):
            raise decision.error
        elif not self._commit(cursor, known, window):
            raise JournalCorrupt(
                "the place behind the head is taken, or the head's row changes by itself",
                what="batch",
                expected=f"no batch that ends at {decision.state.last_seq}",
                found="one",
                key=self.key,
                backend="sqlite",
            )
