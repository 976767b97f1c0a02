"""Mutants of claims and fences."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from statebook import plan
from statebook.atomic import CommitConflict
from statebook.errors import BackendUnavailable, OutcomeUnknown, WriterBusy, WriterFenced
from statebook.keys import ThreadKey
from statebook.model import ANY, Batch, ClaimInfo, EventPage, Expect, JournalHead, Receipt, WriterClaim
from statebook.plan import Commit, Done, Refuse
from statebook.records import HeadState, JournalState
from statebook_conformance.mutants.core_copy import CoreBackend, changed_core, core_copy, journal_class
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping
from statebook_conformance.target import TargetBackend

Replacing = ClaimInfo | Literal[Expect.ANY, Expect.NONE]


def claim_of(head: JournalHead, key: ThreadKey) -> WriterClaim | None:
    """The claim that a head names, as if it were one's own."""
    info = head.claim
    if info is None:
        return None
    return WriterClaim(key, info.journal_id, info.writer_id, info.epoch, info.nonce, head.last_seq, head.checkpoint_seq)


class _Reentrant(BadJournal):
    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        head = self.inner.head(key)
        held = None if head is None else claim_of(head, key)
        if held is not None and held.writer_id == writer_id and replacing is ANY:
            return held
        return super().claim(key, writer_id, replacing=replacing)


CLAIM_REENTRANT: Final = Mutant(
    "claim-reentrant",
    "a writer that holds the journal gets the same claim again, in another process too",
    wrapping(journal=_Reentrant),
)


class _NoneTakesOver(BadJournal):
    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        return super().claim(key, writer_id, replacing=ANY if replacing is Expect.NONE else replacing)


NONE_TAKES_OVER: Final = Mutant(
    "none-takes-over",
    "a claim on condition that nobody holds the journal takes it over all the same",
    wrapping(journal=_NoneTakesOver),
)


class _ReplacingIgnored(BadJournal):
    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        return super().claim(key, writer_id, replacing=ANY if isinstance(replacing, ClaimInfo) else replacing)


REPLACING_IGNORED: Final = Mutant(
    "replacing-ignored",
    "a claim that is to replace one certain claim replaces any",
    wrapping(journal=_ReplacingIgnored),
)


class _BusyButClaimed(BadJournal):
    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        try:
            return super().claim(key, writer_id, replacing=replacing)
        except WriterBusy:
            self.inner.claim(key, writer_id)
            raise


BUSY_BUT_CLAIMED: Final = Mutant(
    "busy-but-claimed", "a claim that is refused as busy has fenced the holder", wrapping(journal=_BusyButClaimed)
)

# ------------------------------------------------------------------------------------------------------------- fence


def _epoch_only(head: HeadState | None, claim: WriterClaim) -> bool:
    return (
        head is not None
        and head.state is JournalState.OPEN
        and head.epoch == claim.epoch
        and head.claim_nonce is not None
        and head.journal_id == claim.journal_id
    )


def _fence_by_epoch(inner: TargetBackend) -> ForwardBackend:
    loose = core_copy("statebook.plan", is_current=_epoch_only, Commit=plan.Commit, Done=plan.Done, Refuse=plan.Refuse)
    return changed_core(
        plan_append=loose.plan_append, plan_heartbeat=loose.plan_heartbeat, plan_release=loose.plan_release
    )(inner)


FENCE_BY_EPOCH_ONLY: Final = Mutant(
    "fence-by-epoch-only", "the fence compares the epoch and not the nonce of the claim", _fence_by_epoch
)


class _ChecksFirst(ForwardJournal):
    """Looks at the fence, then writes without it."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        if head is None or head.claim != claim.info:
            raise WriterFenced("fenced", current_epoch=None if head is None else head.epoch)
        return super().append(claim, batch, base_seq)


def _check_then_write(inner: TargetBackend) -> ForwardBackend:
    def is_open(head: HeadState | None, claim: WriterClaim) -> bool:
        return head is not None and head.state is JournalState.OPEN and head.journal_id == claim.journal_id

    loose = core_copy("statebook.plan", is_current=is_open, Commit=plan.Commit, Done=plan.Done, Refuse=plan.Refuse)
    make = journal_class(plan_append=loose.plan_append)
    return CoreBackend(inner, lambda storage: _ChecksFirst(make(storage)))


FENCE_CHECKED_BEFORE_WRITE: Final = Mutant(
    "fence-checked-before-write", "the fence is read, and the write follows without it", _check_then_write
)


class _FenceAtClaimOnly(BadJournal):
    """Writes under whatever claim the head names."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except WriterFenced as error:
            head = self.inner.head(claim.key)
            current = None if head is None else claim_of(head, claim.key)
            if current is None or error.committed is not None:
                raise
            return super().append(current, batch, base_seq)


FENCE_AT_CLAIM_ONLY: Final = Mutant(
    "fence-at-claim-only",
    "whoever has claimed once may write for ever",
    wrapping(journal=_FenceAtClaimOnly),
    canary=True,
)

# ------------------------------------------------------------------------------------------------------------- epoch


def _release_lowers(
    head: HeadState | None, claim: WriterClaim, *, nonce: str
) -> Commit[HeadState] | Done[None] | Refuse:
    decision = plan.plan_release(head, claim, nonce=nonce)
    if isinstance(decision, Commit):
        return Commit(msgspec.structs.replace(decision.state, epoch=decision.state.epoch - 1))
    return decision


EPOCH_REUSED_AFTER_RELEASE: Final = Mutant(
    "epoch-reused-after-release",
    "a release gives the epoch back, and the next claim gets it again",
    changed_core(plan_release=_release_lowers),
)


def _delete_forgets(head: HeadState | None, *, nonce: str) -> Commit[HeadState] | Done[bool]:
    decision = plan.plan_delete(head, nonce=nonce)
    return Commit(msgspec.structs.replace(decision.state, epoch=0)) if isinstance(decision, Commit) else decision


EPOCH_REUSED_AFTER_DELETE: Final = Mutant(
    "epoch-reused-after-delete",
    "a deleted journal starts again at epoch 1",
    changed_core(plan_delete=_delete_forgets),
)

# -------------------------------------------------------------------------------------------------- heartbeats, lease


class _HeartbeatElsewhere(BadJournal):
    def heartbeat(self, claim: WriterClaim) -> None:
        head = self.inner.head(claim.key)
        if head is None or head.claim != claim.info:
            super().heartbeat(claim)


HEARTBEAT_CHANGES_NOTHING: Final = Mutant(
    "heartbeat-changes-nothing",
    "a heartbeat checks the claim and does not change the head",
    wrapping(journal=_HeartbeatElsewhere),
)


class _HeartbeatForAll(BadJournal):
    def heartbeat(self, claim: WriterClaim) -> None:
        try:
            super().heartbeat(claim)
        except WriterFenced:
            return


FENCED_HEARTBEAT_ACCEPTED: Final = Mutant(
    "fenced-heartbeat-accepted",
    "a fenced writer's heartbeat is accepted, so that it never learns of the takeover",
    wrapping(journal=_HeartbeatForAll),
)


class _Lease(BadJournal):
    """A claim that runs out 20 ms after its last use."""

    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        with self.memory.lock:
            silent = time.time() - self.memory.kept.get(key, 0.0) > 0.02
            claim = super().claim(key, writer_id, replacing=ANY if silent else replacing)
            self.memory.kept[key] = time.time()
            return claim


LEASE_BY_WALL_CLOCK: Final = Mutant(
    "lease-by-wall-clock",
    "a claim runs out by the clock, so that a slow writer meets a second one",
    wrapping(journal=_Lease),
)

# --------------------------------------------------------------------------------------------------------- lost reply


class _Misjudged(ForwardAtomic):
    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        try:
            return super().commit(scope, expected, head, blobs)
        except OutcomeUnknown as error:
            raise BackendUnavailable("the connection was lost", key=scope) from error


def _unknown_as_unavailable(inner: TargetBackend) -> ForwardBackend:
    make = journal_class()
    return CoreBackend(inner, lambda storage: make(_Misjudged(storage)))


UNKNOWN_TAKEN_AS_UNAVAILABLE: Final = Mutant(
    "unknown-taken-as-unavailable",
    "a lost reply is classified as certainly not applied",
    _unknown_as_unavailable,
)

# ------------------------------------------------------------------------------------------------ reads, maintenance


class _TouchingReads(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        head = self.inner.head(key)
        claim = None if head is None else claim_of(head, key)
        if claim is not None:
            self.inner.heartbeat(claim)
        return super().read_after(key, seq, limit)


READ_BUMPS_GENERATION: Final = Mutant(
    "read-bumps-generation", "a read writes the head again", wrapping(journal=_TouchingReads)
)


class _CreatingReads(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        if self.inner.head(key) is None:
            self.inner.release(self.inner.claim(key, "reader"))
        return super().read_after(key, seq, limit)


READ_CREATES: Final = Mutant(
    "read-creates", "reading a journal that was never written creates it", wrapping(journal=_CreatingReads)
)


class _ClaimingTrim(BadJournal):
    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        claim = self.inner.claim(key, "trimmer")
        self.inner.release(claim)
        return super().trim(key, before_seq)


TRIM_FENCES_WRITER: Final = Mutant(
    "trim-fences-writer",
    "a trim claims the journal, so that the writer beside it is fenced",
    wrapping(journal=_ClaimingTrim),
)
