"""Mutants of the head, the chain and the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from statebook import plan
from statebook.atomic import AtomicJournalStorage
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.codec import CHAIN_START, chain_next
from statebook.index_tree import Shape
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    JournalHead,
    Receipt,
    WriterClaim,
)
from statebook.plan import Commit, Refuse
from statebook.records import HeadState
from statebook_conformance.mutants.core_copy import CoreBackend, changed_core, core_copy
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping
from statebook_conformance.target import TargetBackend


def _shown(change: Callable[[JournalHead], JournalHead]) -> Callable[[TargetBackend], ForwardBackend]:
    """A journal whose head is shown otherwise than it is."""

    class Shown(BadJournal):
        def head(self, key: ThreadKey) -> JournalHead | None:
            head = super().head(key)
            return None if head is None else change(head)

    return wrapping(journal=Shown)


GENERATION_STAYS: Final = Mutant(
    "generation-stays",
    "the generation counts batches, so that heartbeats, releases and barriers do not move it",
    _shown(lambda head: msgspec.structs.replace(head, generation=head.last_seq + 1)),
)
HEAD_NONCE_STAYS: Final = Mutant(
    "head-nonce-stays",
    "the nonce of the head is the one of the claim",
    _shown(lambda head: msgspec.structs.replace(head, nonce=head.claim.nonce if head.claim else "free")),
)
CHAIN_STAYS: Final = Mutant(
    "chain-stays",
    "the chain digest is never carried on",
    _shown(lambda head: msgspec.structs.replace(head, chain=CHAIN_START)),
)


def _chain_without_epoch(inner: TargetBackend) -> ForwardBackend:
    def blind(chain: str, body_digest: str, first_seq: int, last_seq: int, epoch: int) -> str:
        return chain_next(chain, body_digest, first_seq, last_seq, epoch * 0)

    loose = core_copy("statebook.plan", chain_next=blind, Commit=plan.Commit, Done=plan.Done, Refuse=plan.Refuse)
    return changed_core(plan_append=loose.plan_append)(inner)


CHAIN_IGNORES_EPOCH: Final = Mutant(
    "chain-ignores-epoch", "the chain digest does not depend on the epoch of the batch", _chain_without_epoch
)


def _plan_claim_same_identity(
    head: HeadState | None,
    key: ThreadKey,
    writer_id: str,
    replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE],
    *,
    nonce: str,
    claim_nonce: str,
    journal_id: str,
) -> Commit[HeadState] | Refuse:
    identity = journal_id if head is None else head.journal_id
    return plan.plan_claim(head, key, writer_id, replacing, nonce=nonce, claim_nonce=claim_nonce, journal_id=identity)


JOURNAL_ID_REUSED: Final = Mutant(
    "journal-id-reused",
    "a new incarnation of a deleted journal has the identity of the old one",
    changed_core(plan_claim=_plan_claim_same_identity),
)


class _OldReceipts(BadJournal):
    """Finds receipts by thread and batch id, deleted journals' too."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with self.memory.lock:
            known: dict[Any, Receipt] = self.memory.kept
            old = known.get((claim.key, batch.batch_id))
            if old is not None and old.journal_id != claim.journal_id:
                return msgspec.structs.replace(old, replayed=True)
            receipt = super().append(claim, batch, base_seq)
            known[claim.key, batch.batch_id] = receipt
            return receipt


RECEIPTS_OUTLIVE_DELETE: Final = Mutant(
    "receipts-outlive-delete",
    "receipts of a deleted journal stay, so that a new journal drops its first batch as a duplicate",
    wrapping(journal=_OldReceipts),
)


def _shifted(receipt: Receipt) -> Receipt:
    return msgspec.structs.replace(receipt, first_seq=receipt.first_seq - 1, last_seq=receipt.last_seq - 1)


class _FromZero(BadJournal):
    """Gives its first event seq 0; every seq is one less than it is."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return _shifted(super().append(claim, batch, claim.last_seq if base_seq < 1 else base_seq + 1))

    def append_many(self, requests: tuple[AppendRequest, ...]) -> tuple[AppendOutcome, ...]:  # type: ignore[override]
        return tuple(_shifted(o) if isinstance(o, Receipt) else o for o in super().append_many(requests))


SEQ_STARTS_AT_ZERO: Final = Mutant(
    "seq-starts-at-zero", "the first event of a journal has seq 0", wrapping(journal=_FromZero)
)

# ------------------------------------------------------------------------------------------------------------- pages


class _EdgeLost(BadJournal):
    """Loses the first event of a page that begins behind a multiple of 64."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        if seq and seq % 64 == 0 and len(page.events) > 1:
            return EventPage(page.events[1:], page.has_more, page.last_seq)
        return page


PAGE_EDGE_LOST: Final = Mutant(
    "page-edge-lost", "the first event of a page is lost where a segment begins", wrapping(journal=_EdgeLost)
)


class _EdgeRepeated(BadJournal):
    """Reads from a seq and not from behind it."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        if seq and page.events:
            before = super().read_after(key, seq - 1, 1).events
            return EventPage((*before, *page.events)[:limit], page.has_more, page.last_seq)
        return page


PAGE_EDGE_REPEATED: Final = Mutant(
    "page-edge-repeated",
    "a page begins with the last event of the page before",
    wrapping(journal=_EdgeRepeated),
    canary=True,
)


class _CutAtThousand(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        return EventPage(page.events[:1_000], page.has_more and len(page.events) < 1_000, page.last_seq)


CUT_AT_1000: Final = Mutant(
    "cut-at-1000", "a page longer than the driver's is cut and said to be the end", wrapping(journal=_CutAtThousand)
)


class _TailEdgeLost(BadJournal):
    """Drops the batch that stands right before one that does not fit the tail."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        small = [event for event in page.events if len(event.payload) != 1 + 2]
        return EventPage(tuple(small), page.has_more, page.last_seq)


TAIL_EDGE_LOST: Final = Mutant(
    "tail-edge-lost",
    "a small batch is lost between two that do not fit the head's tail",
    wrapping(journal=_TailEdgeLost),
)


def _shaped(shape: Shape) -> Callable[[TargetBackend], ForwardBackend]:
    def journal(storage: AtomicJournalStorage) -> ThreadJournalStore:
        return AtomicThreadJournalStore(storage, shape=shape)

    return lambda inner: CoreBackend(inner, journal)


HEAD_GROWS: Final = Mutant(
    "head-grows", "everything is kept in the head, which grows with the journal", _shaped(Shape(tail_bytes_max=1 << 40))
)
TAIL_NOT_USED: Final = Mutant(
    "tail-not-used", "each batch is written as a blob of its own, however small", _shaped(Shape(tail_bytes_max=0))
)
