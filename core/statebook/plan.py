"""The decisions of the contract as pure functions: may this claim or batch commit, and if not, why?

No I/O, no clock, no randomness but as an argument. A backend reads one head, gathers the evidence that a function asks
for, and gets a closed decision: `Commit` (write this, conditional on the head that was judged), `Done` (answer this,
write nothing) or `Refuse` (raise this, write nothing). Every backend that can uses these functions, so that all answer
alike. The decisions about export cursors are in `plan_cursors`.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from statebook.codec import CHAIN_START, chain_next
from statebook.errors import (
    BatchConflict,
    HeadConflict,
    JournalRegressed,
    StatebookError,
    Trimmed,
    WriterBusy,
    WriterFenced,
)
from statebook.keys import ThreadKey
from statebook.model import ClaimInfo, Expect, Receipt, WriterClaim
from statebook.records import FrozenBatch, HeadState, JournalState

T = TypeVar("T")

_OPEN: Final = JournalState.OPEN


class Commit(msgspec.Struct, Generic[T], frozen=True):
    """Write this state, conditional on the one that was judged."""

    state: T


class Done(msgspec.Struct, Generic[T], frozen=True):
    """Answer this; nothing is written."""

    answer: T


class Refuse(msgspec.Struct, frozen=True):
    """Raise this; nothing is written."""

    error: StatebookError


# ---------------------------------------------------------------------------------------------------------- writers


def is_current(head: HeadState | None, claim: WriterClaim) -> bool:
    """Tell whether a claim is the one that a head names: the fence (CLAIM-2)."""
    return (
        head is not None
        and head.state is JournalState.OPEN
        and head.epoch == claim.epoch
        and head.claim_nonce == claim.nonce
        and head.journal_id == claim.journal_id
    )


def fenced(head: HeadState | None, claim: WriterClaim, committed: Receipt | None = None) -> WriterFenced:
    """The error for a claim that is not current (CLAIM-4)."""
    landed = "the batch had landed" if committed else "nothing was written, and nothing of this call ever will be"
    return WriterFenced(
        f"writer {claim.writer_id!r} of epoch {claim.epoch} is fenced; {landed}. Claim again and read again",
        current_epoch=None if head is None else head.epoch,
        committed=committed,
        key=claim.key.name,
    )


def touched(head: HeadState, nonce: str) -> HeadState:
    """The same head, written once more: a barrier that ends every older conditional write (CLAIM-8, SETTLE-2)."""
    return msgspec.structs.replace(head, generation=head.generation + 1, nonce=nonce)


def plan_claim(
    head: HeadState | None,
    key: ThreadKey,
    writer_id: str,
    replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE],
    *,
    nonce: str,
    claim_nonce: str,
    journal_id: str,
) -> Commit[HeadState] | Refuse:
    """Decide a claim.

    Guarantees CLAIM-1: the epoch rises, the nonce is fresh, the first claim creates the journal. CLAIM-3: over a
    tombstone epoch and generation go on. LIFE-5: a new incarnation has a new `journal_id`, no receipts and no cursors.

    Args:
        head: The head that was read, a tombstone too, or None.
        key: The thread.
        writer_id: Who claims.
        replacing: The condition.
        nonce: Fresh, for the write of the head.
        claim_nonce: Fresh, for the claim.
        journal_id: Fresh, for a new incarnation.

    Returns:
        What to write; its `granted()` is the answer once it is committed.
    """
    holder = None if head is None or head.state is JournalState.DELETED else head.claim
    if replacing is Expect.NONE and holder is not None:
        return Refuse(
            WriterBusy(
                f"writer {holder.writer_id!r} holds the journal since epoch {holder.epoch}", holder=holder, key=key.name
            )
        )
    if isinstance(replacing, ClaimInfo) and replacing != holder:
        return Refuse(
            WriterBusy(
                "the claim to be replaced is not the one that holds the journal now", holder=holder, key=key.name
            )
        )
    if head is None or head.state is JournalState.DELETED:
        return Commit(
            HeadState(
                key=key,
                journal_id=journal_id,
                generation=1 if head is None else head.generation + 1,
                nonce=nonce,
                epoch=1 if head is None else head.epoch + 1,
                claim_nonce=claim_nonce,
                writer_id=writer_id,
                state=JournalState.OPEN,
                first_seq=1,
                last_seq=0,
                checkpoint_seq=None,
                chain=CHAIN_START,
            )
        )
    return Commit(
        msgspec.structs.replace(
            head,
            generation=head.generation + 1,
            nonce=nonce,
            epoch=head.epoch + 1,
            claim_nonce=claim_nonce,
            writer_id=writer_id,
        )
    )


def plan_heartbeat(head: HeadState | None, claim: WriterClaim, *, nonce: str) -> Commit[HeadState] | Refuse:
    """Decide a heartbeat: the head changes, nothing in it does (CLAIM-5)."""
    if head is None or not is_current(head, claim):
        return Refuse(fenced(head, claim))
    return Commit(touched(head, nonce))


def plan_release(head: HeadState | None, claim: WriterClaim, *, nonce: str) -> Commit[HeadState] | Done[None] | Refuse:
    """Decide a release: the claim is cleared, the epoch stays (CLAIM-3). Releasing again is harmless."""
    if head is not None and is_current(head, claim):
        return Commit(
            msgspec.structs.replace(head, generation=head.generation + 1, nonce=nonce, claim_nonce=None, writer_id=None)
        )
    released = (
        head is not None
        and head.state is JournalState.OPEN
        and head.journal_id == claim.journal_id
        and head.epoch == claim.epoch
        and head.claim_nonce is None
    )
    return Done(None) if released else Refuse(fenced(head, claim))


AppendDecision: TypeAlias = "Commit[HeadState] | Done[Receipt] | Refuse"


def admits(head: HeadState, claim: WriterClaim, base_seq: int) -> bool:
    """Tell whether a batch that is nowhere in the journal may be committed: the last row of the table (APPEND).

    For a backend that has a remembered head and finds nothing of the batch in its window: what `plan_append` would
    commit, `extended` makes without asking further. Where this is False, `plan_append` says why.

    Args:
        head: The head that the write will be conditional on.
        claim: The writer's claim.
        base_seq: The base.

    Returns:
        Whether the claim is current and the base is the end of the journal.
    """
    return (
        head.last_seq == base_seq
        and head.claim_nonce == claim.nonce
        and head.epoch == claim.epoch
        and head.journal_id == claim.journal_id
        and head.state is _OPEN
    )


def plan_append(
    head: HeadState | None,
    claim: WriterClaim,
    batch: FrozenBatch,
    base_seq: int,
    *,
    placed: Receipt | None,
    overlap: str | None,
    nonce: str,
) -> AppendDecision:
    """Decide an append by the table of the contract; the first row that matches wins.

    Args:
        head: The head that was read, or None.
        claim: The writer's claim.
        batch: The frozen batch.
        base_seq: The base.
        placed: Where the batch id is in the chain of this head: found among the receipts, or as the batch that starts
            at `base_seq + 1` and has this id; None where neither (APPEND-1).
        overlap: An event id of the batch that is already in the window of this head or in the batch that starts at
            `base_seq + 1`, or None. Ignored where `placed`.
        nonce: Fresh, for the write of the head.

    Returns:
        `Commit` with the head to write together with the batch (its receipt is `receipt_of`), `Done` with the original
        receipt, or `Refuse`.
    """
    if head is None or head.state is JournalState.DELETED or head.journal_id != claim.journal_id:
        return Refuse(fenced(head, claim))
    if placed is not None:
        if placed.digest != batch.digest:
            return Refuse(
                BatchConflict(
                    f"batch {batch.batch_id!r} is in the journal with other content; use a new batch_id",
                    batch_id=batch.batch_id,
                    key=claim.key.name,
                )
            )
        receipt = msgspec.structs.replace(placed, replayed=True)
        return Done(receipt) if is_current(head, claim) else Refuse(fenced(head, claim, receipt))
    if overlap is not None:
        return Refuse(
            BatchConflict(
                f"event {overlap!r} of batch {batch.batch_id!r} is already in the journal",
                batch_id=batch.batch_id,
                event_id=overlap,
                key=claim.key.name,
            )
        )
    if not is_current(head, claim):
        return Refuse(fenced(head, claim))
    if head.last_seq > base_seq:
        return Refuse(
            HeadConflict(
                f"the journal is at seq {head.last_seq}, past base_seq {base_seq}; read what came and decide again",
                last_seq=head.last_seq,
                base_seq=base_seq,
                key=claim.key.name,
            )
        )
    if head.last_seq < base_seq:
        return Refuse(regressed(head, base_seq))
    return Commit(extended(head, batch, nonce))


def extended(head: HeadState, batch: FrozenBatch, nonce: str) -> HeadState:
    """The head that takes up a batch which it admits (HEAD-2, HEAD-3).

    Args:
        head: The head that was judged.
        batch: The batch.
        nonce: Fresh, for the write of the head.

    Returns:
        The head to write together with the batch.
    """
    first = head.last_seq + 1
    last = head.last_seq + len(batch.event_ids)
    checkpoint = head.checkpoint_seq if batch.checkpoint_offset is None else first + batch.checkpoint_offset
    return HeadState(
        head.key,
        head.journal_id,
        head.generation + 1,
        nonce,
        head.epoch,
        head.claim_nonce,
        head.writer_id,
        head.state,
        head.first_seq,
        last,
        checkpoint,
        chain_next(head.chain, batch.digest, first, last, head.epoch),
    )


def receipt_of(head: HeadState, batch: FrozenBatch) -> Receipt:
    """The receipt of a batch that the given, new head has just taken up."""
    return Receipt(
        batch.batch_id,
        head.journal_id,
        head.last_seq - len(batch.event_ids) + 1,
        head.last_seq,
        head.epoch,
        batch.digest,
    )


def plan_settle(
    head: HeadState | None, claim: WriterClaim, base_seq: int, *, placed: Receipt | None, nonce: str
) -> Commit[HeadState] | Done[Receipt] | Refuse:
    """Decide a settlement.

    Guarantees SETTLE-2: `Commit` is the barrier; only after it has been committed may "not there" be answered.

    Args:
        head: The head that was read, or None.
        claim: The claim through which the batch was sent; it may be fenced.
        base_seq: The base of the batch.
        placed: As for `plan_append`.
        nonce: Fresh, for the barrier.

    Returns:
        `Done` with the receipt, `Commit` with the barrier, or `Refuse`.
    """
    if head is None or head.state is JournalState.DELETED or head.journal_id != claim.journal_id:
        return Refuse(fenced(head, claim))
    if placed is not None:
        return Done(msgspec.structs.replace(placed, replayed=True))
    if base_seq + 1 < head.first_seq:
        return Refuse(trimmed(head))
    return Commit(touched(head, nonce))


# ---------------------------------------------------------------------------------------------------------- readers


def check_read(head: HeadState | None, key: ThreadKey, seq: int) -> StatebookError | None:
    """Judge a read position against a head (READ-3).

    Args:
        head: The head that was read, or None.
        key: The thread.
        seq: The position, at least 0.

    Returns:
        The error, or None where the read may go on; then a head that is None or a tombstone reads as empty.
    """
    if head is None or head.state is JournalState.DELETED:
        if seq == 0:
            return None
        return JournalRegressed(
            f"there is no journal, but seq {seq} was seen in it", last_seq=0, seen_seq=seq, key=key.name
        )
    if seq > head.last_seq:
        return regressed(head, seq)
    if seq < head.first_seq - 1:
        return trimmed(head)
    return None


def regressed(head: HeadState, seen_seq: int) -> JournalRegressed:
    """The error for a position behind the end of a journal: data that was seen is gone."""
    return JournalRegressed(
        f"the journal ends at seq {head.last_seq}, but seq {seen_seq} was seen or acknowledged: data is gone",
        last_seq=head.last_seq,
        seen_seq=seen_seq,
        key=head.key.name,
    )


def trimmed(head: HeadState) -> Trimmed:
    """The error for a position before the first event that is left."""
    return Trimmed(
        f"events before seq {head.first_seq} have been trimmed away", first_seq=head.first_seq, key=head.key.name
    )


def plan_delete(head: HeadState | None, *, nonce: str) -> Commit[HeadState] | Done[bool]:
    """Decide a delete: a tombstone keeps epoch and generation, nothing else (LIFE-5)."""
    if head is None or head.state is JournalState.DELETED:
        return Done(False)
    return Commit(
        msgspec.structs.replace(
            touched(head, nonce),
            claim_nonce=None,
            writer_id=None,
            state=JournalState.DELETED,
            first_seq=1,
            last_seq=0,
            checkpoint_seq=None,
            chain=CHAIN_START,
        )
    )


def plan_purge(head: HeadState | None, key: ThreadKey) -> Commit[None] | Done[bool] | Refuse:
    """Decide a purge: only a tombstone may go (LIFE-5)."""
    if head is None:
        return Done(False)
    if head.state is JournalState.OPEN:
        return Refuse(HeadConflict("the journal is open; delete it before it is purged", key=key.name))
    return Commit(None)
