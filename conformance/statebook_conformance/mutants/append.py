"""Mutants of append."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from statebook import plan
from statebook.capabilities import Limits
from statebook.errors import BatchConflict, HeadConflict, StatebookError, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import AppendOutcome, AppendRequest, Batch, EventPage, Receipt, WriterClaim
from statebook.plan import AppendDecision
from statebook.records import FrozenBatch, HeadState, freeze
from statebook_conformance.mutants.core_copy import changed_core
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping
from statebook_conformance.target import TargetBackend

# -------------------------------------------------------------------------------------------------------- same batch


class _OtherAccepted(BadJournal):
    """Takes a batch id that it knows for the same batch."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except BatchConflict as error:
            known = None if error.event_id is not None else self.inner.settle(claim, batch.batch_id, base_seq)
            if known is None:
                raise
            return known


OTHER_CONTENT_ACCEPTED: Final = Mutant(
    "other-content-accepted",
    "the same batch id with another content is ignored without a word, as INSERT OR IGNORE does",
    wrapping(journal=_OtherAccepted),
    canary=True,
)


def _ids_only(batch: Batch, limits: Limits, key: ThreadKey) -> FrozenBatch:
    frozen = freeze(batch, limits, key)
    plain = Batch(
        batch.batch_id, tuple(msgspec.structs.replace(event, payload=b"{}", occurred_at=0) for event in batch.events)
    )
    return msgspec.structs.replace(frozen, digest=freeze(plain, limits, key).digest)


CONTENT_BY_EVENT_IDS: Final = Mutant(
    "content-by-event-ids",
    "batches are compared by the ids of their events and not by their payloads",
    changed_core(freeze=_ids_only),
)


class _AppendedAgain(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = super().append(claim, batch, base_seq)
        if not receipt.replayed:
            return receipt
        head = self.inner.head(claim.key)
        again = Batch(
            f"{batch.batch_id} again",
            tuple(msgspec.structs.replace(event, event_id=f"{event.event_id} again") for event in batch.events),
        )
        return super().append(claim, again, receipt.last_seq if head is None else head.last_seq)


RETRY_APPENDED_AGAIN: Final = Mutant(
    "retry-appended-again", "a batch that is sent again is stored again", wrapping(journal=_AppendedAgain), canary=True
)


class _ShortWindow(BadJournal):
    """Knows a batch only among the last 8 events, or by its base."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = super().append(claim, batch, base_seq)
        head = self.inner.head(claim.key)
        anchored = receipt.first_seq == base_seq + 1
        if receipt.replayed and head is not None and head.last_seq - receipt.last_seq > 8 and not anchored:
            raise HeadConflict("newer head", last_seq=head.last_seq, base_seq=base_seq)
        return receipt


WINDOW_TOO_SHORT: Final = Mutant(
    "window-too-short", "only the very last batches are recognised", wrapping(journal=_ShortWindow)
)


class _OwnReceipts(BadJournal):
    """Knows the batches that this very handle has appended."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._mine: set[str] = set()

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = super().append(claim, batch, base_seq)
        if receipt.replayed and batch.batch_id not in self._mine:
            raise HeadConflict("newer head", last_seq=receipt.last_seq, base_seq=base_seq)
        self._mine.add(batch.batch_id)
        return receipt


RECEIPTS_LOST_ON_REOPEN: Final = Mutant(
    "receipts-lost-on-reopen",
    "receipts are kept in the handle, and lost when it is opened again",
    wrapping(journal=_OwnReceipts),
)


class _OwnEpoch(BadJournal):
    """Gives a receipt the epoch of the claim that asks."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = super().append(claim, batch, base_seq)
        if not receipt.replayed:
            return receipt
        head = self.inner.head(claim.key)
        last = receipt.last_seq if head is None else head.last_seq
        size = receipt.last_seq - receipt.first_seq
        return msgspec.structs.replace(receipt, epoch=claim.epoch, first_seq=last - size, last_seq=last)


REPLAYED_RECEIPT_DIFFERS: Final = Mutant(
    "replayed-receipt-differs",
    "a retry gets a receipt that is made from the newest head",
    wrapping(journal=_OwnEpoch),
)


class _NoDigest(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return msgspec.structs.replace(super().append(claim, batch, base_seq), digest="")


RECEIPT_WITHOUT_DIGEST: Final = Mutant(
    "receipt-without-digest", "a receipt does not say which content was committed", wrapping(journal=_NoDigest)
)


class _OwnRetriesOnly(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = super().append(claim, batch, base_seq)
        if receipt.replayed and receipt.epoch != claim.epoch:
            raise BatchConflict("another writer's batch", batch_id=batch.batch_id)
        return receipt


RETRY_OF_OTHERS_REFUSED: Final = Mutant(
    "retry-of-others-refused",
    "a new owner cannot learn that the old one's batch landed",
    wrapping(journal=_OwnRetriesOnly),
)


class _FencedWithoutReceipt(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except WriterFenced as error:
            raise WriterFenced(str(error), current_epoch=error.current_epoch) from error


FENCED_RECEIPT_LOST: Final = Mutant(
    "fenced-receipt-lost",
    "a fenced writer is not told that its batch had landed",
    wrapping(journal=_FencedWithoutReceipt),
)


class _OverlapAccepted(BadJournal):
    """Leaves out the events that are there already."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except BatchConflict as error:
            rest = tuple(event for event in batch.events if event.event_id != error.event_id)
            if error.event_id is None or not rest:
                raise
            return super().append(claim, Batch(batch.batch_id, rest), base_seq)


OVERLAP_ACCEPTED: Final = Mutant(
    "overlap-accepted", "events that are there already are left out of the batch", wrapping(journal=_OverlapAccepted)
)

# -------------------------------------------------------------------------------------------------------------- base


def _judged(change: Callable[[HeadState | None, int], int]) -> Callable[[TargetBackend], ForwardBackend]:
    """Core's journal in which an append is judged on another base."""

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
        base = change(head, base_seq)
        return plan.plan_append(head, claim, batch, base, placed=placed, overlap=overlap, nonce=nonce)

    return changed_core(plan_append=plan_append)


BASE_AHEAD_ACCEPTED: Final = Mutant(
    "base-ahead-accepted",
    "a base behind the end of the journal is taken for the end, though acknowledged data is gone",
    _judged(lambda head, base: base if head is None else min(base, head.last_seq)),
)
BASE_IGNORED: Final = Mutant(
    "base-ignored",
    "a batch is appended at the end, whatever its writer had seen",
    _judged(lambda head, base: base if head is None else head.last_seq),
)


class _NegativeBase(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        last = 0 if head is None else head.last_seq
        return super().append(claim, batch, last if base_seq == -1 else base_seq)


NEGATIVE_BASE_ACCEPTED: Final = Mutant(
    "negative-base-accepted", "a base of -1 means the end of the journal", wrapping(journal=_NegativeBase)
)


class _ConflictButWritten(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except HeadConflict as error:
            super().append(claim, batch, error.last_seq or 0)
            raise


HEAD_CONFLICT_BUT_WRITTEN: Final = Mutant(
    "head-conflict-but-written",
    "a batch that is refused as a conflict is in the journal",
    wrapping(journal=_ConflictButWritten),
    canary=True,
)

# ------------------------------------------------------------------------------------------------------------- fence


class _ReleasedMayWrite(BadJournal):
    """A release is noted when the next writer claims."""

    def release(self, claim: WriterClaim) -> None:
        self.inner.heartbeat(claim)


RELEASED_MAY_WRITE: Final = Mutant(
    "released-may-write", "a claim that was given back still writes", wrapping(journal=_ReleasedMayWrite)
)


class _AnyIncarnation(BadJournal):
    """Takes a claim for one of the journal that is there now."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        identity = claim.journal_id if head is None else head.journal_id
        return super().append(msgspec.structs.replace(claim, journal_id=identity), batch, base_seq)


INCARNATION_IGNORED: Final = Mutant(
    "incarnation-ignored",
    "a claim of a deleted journal is judged against the batches of the new one",
    wrapping(journal=_AnyIncarnation),
)

# ----------------------------------------------------------------------------------------------------- all or nothing


class _OneByOne(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if len(batch.events) == 1:
            return super().append(claim, batch, base_seq)
        receipts = [
            super(_OneByOne, self).append(claim, Batch(f"{batch.batch_id}/{n}", (event,)), base_seq + n)
            for n, event in enumerate(batch.events)
        ]
        return msgspec.structs.replace(receipts[-1], batch_id=batch.batch_id, first_seq=receipts[0].first_seq)


BATCH_ONE_BY_ONE: Final = Mutant(
    "batch-one-by-one",
    "the events of a batch are stored one after the other",
    wrapping(journal=_OneByOne),
)


class _Reordered(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        events = sorted(page.events, key=lambda event: (event.occurred_at, event.event_id))
        renumbered = (msgspec.structs.replace(event, seq=seq + n) for n, event in enumerate(events, 1))
        return EventPage(tuple(renumbered), page.has_more, page.last_seq)


BATCH_REORDERED: Final = Mutant("batch-reordered", "events are ordered by time and id", wrapping(journal=_Reordered))


def _no_limits(batch: Batch, limits: Limits, key: ThreadKey) -> FrozenBatch:
    wide = msgspec.structs.replace(limits, value_bytes_max=1 << 40, batch_events_max=1 << 40, batch_bytes_max=1 << 40)
    return freeze(batch, wide, key)


LIMITS_IGNORED: Final = Mutant("limits-ignored", "the declared limits are not checked", changed_core(freeze=_no_limits))

# --------------------------------------------------------------------------------------------------------------- many


class _AllOrNothing(BadJournal):
    """Answers with the first refusal where there is one."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        outcomes: list[AppendOutcome] = []
        failed: StatebookError | None = None
        for request in requests:
            if failed is not None:
                outcomes.append(failed)
                continue
            try:
                outcomes.append(self.append(request.claim, request.batch, request.base_seq))
            except StatebookError as error:
                failed = error
                outcomes.append(error)
        return tuple(outcomes)


MANY_ALL_OR_NOTHING: Final = Mutant(
    "many-all-or-nothing", "one refused batch of a group refuses those behind it", wrapping(journal=_AllOrNothing)
)


class _Stops(BadJournal):
    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        outcomes: list[AppendOutcome] = []
        for request in requests:
            try:
                outcomes.append(self.append(request.claim, request.batch, request.base_seq))
            except StatebookError as error:
                return (*outcomes, error)
        return tuple(outcomes)


MANY_STOPS: Final = Mutant(
    "many-stops", "a group ends at its first refusal, and those behind it get no answer", wrapping(journal=_Stops)
)


class _LosesOrder(BadJournal):
    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        backwards = super().append_many(tuple(reversed(requests)))
        return tuple(reversed(backwards))


MANY_LOSES_ORDER: Final = Mutant(
    "many-loses-order", "the batches of one thread are not judged in their order", wrapping(journal=_LosesOrder)
)


class _LimitIgnored(BadJournal):
    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        limit = self.capabilities.limits.group_batches_max
        outcomes: list[AppendOutcome] = []
        for start in range(0, len(requests), limit):
            outcomes += super().append_many(requests[start : start + limit])
        return tuple(outcomes)


MANY_LIMIT_IGNORED: Final = Mutant(
    "many-limit-ignored", "a group over the limit is committed in parts", wrapping(journal=_LimitIgnored)
)

# ---------------------------------------------------------------------------------------------------------- checkpoint


def _no_checkpoint(batch: Batch, limits: Limits, key: ThreadKey) -> FrozenBatch:
    return msgspec.structs.replace(freeze(batch, limits, key), checkpoint_offset=None)


def _first_checkpoint(batch: Batch, limits: Limits, key: ThreadKey) -> FrozenBatch:
    frozen = freeze(batch, limits, key)
    return frozen if frozen.checkpoint_offset is None else msgspec.structs.replace(frozen, checkpoint_offset=0)


CHECKPOINT_STAYS: Final = Mutant(
    "checkpoint-stays", "a checkpoint in a batch does not move checkpoint_seq", changed_core(freeze=_no_checkpoint)
)
CHECKPOINT_FIRST_OF_BATCH: Final = Mutant(
    "checkpoint-first-of-batch",
    "the first event of a batch with a checkpoint counts as the checkpoint",
    changed_core(freeze=_first_checkpoint),
)
