"""Mutants of settlement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.errors import OutcomeUnknown, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.model import Receipt, WriterClaim
from statebook_conformance.mutants.core_copy import CoreBackend, journal_class
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping
from statebook_conformance.target import TargetBackend


class _Forgets(BadJournal):
    """Looks at the last 16 events only."""

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        receipt = super().settle(claim, batch_id, base_seq)
        head = self.inner.head(claim.key)
        return None if receipt and head and head.last_seq - receipt.last_seq > 16 else receipt


SETTLE_FORGETS: Final = Mutant(
    "settle-forgets", "a batch that is not among the newest is settled as absent", wrapping(journal=_Forgets)
)


class _NeedsClaim(BadJournal):
    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        head = self.inner.head(claim.key)
        if head is None or head.claim != claim.info:
            raise WriterFenced("fenced", current_epoch=None if head is None else head.epoch)
        return super().settle(claim, batch_id, base_seq)


SETTLE_NEEDS_CLAIM: Final = Mutant(
    "settle-needs-claim", "a fenced writer cannot learn whether its batch landed", wrapping(journal=_NeedsClaim)
)


class _ReadsOnly(BadJournal):
    """Looks for the batch by reading, page by page, for the events behind its base."""

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        head = self.inner.head(claim.key)
        if head is not None and base_seq >= head.last_seq:
            return None
        return super().settle(claim, batch_id, base_seq)


SETTLE_READS_ONLY: Final = Mutant(
    "settle-reads-only",
    "where the journal ends at the base, a batch is settled as absent without a write",
    wrapping(journal=_ReadsOnly),
    canary=True,
)


class _Tidies(ForwardAtomic):
    """Deletes the blobs of a commit that did not come back as a success."""

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        try:
            return super().commit(scope, expected, head, blobs)
        except OutcomeUnknown:
            if blobs:
                self.inner.delete_blobs(scope, tuple(blobs))
            raise


def _deletes_after_unknown(inner: TargetBackend) -> ForwardBackend:
    make = journal_class()

    def journal(storage: AtomicJournalStorage) -> ThreadJournalStore:
        return make(_Tidies(storage))

    return CoreBackend(inner, journal)


DELETES_AFTER_UNKNOWN: Final = Mutant(
    "deletes-after-unknown",
    "a writer whose reply was lost deletes the blobs that it wrote, though the head may refer to them",
    _deletes_after_unknown,
)
