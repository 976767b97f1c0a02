"""Mutants of claims and fences that only show where calls meet: checks before the act, facts of one process alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from statebook.errors import BackendUnavailable, HeadConflict, WriterBusy
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    ANY,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    Expect,
    Receipt,
    WriterClaim,
)
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping

GAP_S: Final = 0.001
"""How long a mutant sleeps between its check and its act."""

FILES: Final = "file://{directory}"


def unfenced(inner: ThreadJournalStore, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
    """Append as whoever holds the journal now, and give the receipt that the caller expects."""
    head = inner.head(claim.key)
    holder = None if head is None else head.claim
    if head is None or holder is None:
        return inner.append(claim, batch, base_seq)
    now = WriterClaim(claim.key, holder.journal_id, holder.writer_id, holder.epoch, holder.nonce, head.last_seq)
    receipt = inner.append(now, batch, base_seq)
    return receipt if receipt.replayed else msgspec.structs.replace(receipt, epoch=claim.epoch)


class Blind(BadJournal):
    """Groups go one by one, through this mutant's own append."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        return ThreadJournalStore.append_many(self, requests)


# ------------------------------------------------------------------------------------------------------------- fences


class _FenceBeforeWrite(Blind):
    """Looks whether the claim holds, and writes in a second step."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        if head is None or head.claim != claim.info:
            return self.inner.append(claim, batch, base_seq)
        time.sleep(GAP_S)
        return unfenced(self.inner, claim, batch, base_seq)


class _CheckedOnce(Blind):
    """A handle that was granted a claim, or saw it hold once, never looks again."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._granted: set[str] = set()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim = self.inner.claim(key, writer_id, replacing=replacing)
        self._granted.add(claim.nonce)
        return claim

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if claim.nonce in self._granted:
            return unfenced(self.inner, claim, batch, base_seq)
        return self.inner.append(claim, batch, base_seq)


FENCE_BEFORE_WRITE: Final = Mutant(
    "fence-before-write",
    "the claim is checked, and the batch written in a second step: a takeover in between is not seen",
    wrapping(journal=_FenceBeforeWrite),
)
FENCE_BEFORE_WRITE_ON_FILES: Final = Mutant(
    "fence-before-write-on-files",
    "the claim is checked, and the batch written in a second step, over processes",
    wrapping(journal=_FenceBeforeWrite),
    base=FILES,
)
CLAIM_CHECKED_ONCE: Final = Mutant(
    "claim-checked-once",
    "a handle keeps in mind that its claim holds, and no longer looks when it writes",
    wrapping(journal=_CheckedOnce),
)
CLAIM_CHECKED_ONCE_ON_FILES: Final = Mutant(
    "claim-checked-once-on-files",
    "a process keeps in mind that its claim holds, and no longer looks when it writes",
    wrapping(journal=_CheckedOnce),
    base=FILES,
)


# ------------------------------------------------------------------------------------------------------------- epochs


class _Renaming(Blind):
    """Gives out claims that differ from the real ones, and keeps the real ones in mind by nonce."""

    def _real(self, claim: WriterClaim) -> WriterClaim:
        real: Any = self.memory.kept.get(claim.nonce, claim)
        return real if isinstance(real, WriterClaim) else claim

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return self.inner.append(self._real(claim), batch, base_seq)

    def heartbeat(self, claim: WriterClaim) -> None:
        self.inner.heartbeat(self._real(claim))

    def release(self, claim: WriterClaim) -> None:
        self.inner.release(self._real(claim))

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        return self.inner.settle(self._real(claim), batch_id, base_seq)


class _EpochInProcess(_Renaming):
    """Counts epochs, and knows the holder, in the memory of the process."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        with self.memory.lock:
            holder: Any = self.memory.kept.get(("holder", key))
            if replacing is Expect.NONE and isinstance(holder, WriterClaim):
                raise WriterBusy("somebody of this process holds it", holder=holder.info, key=key.name)
            real = self.inner.claim(key, writer_id)
            epoch = self.memory.kept.get(("epoch", key), 0) + 1
            claim = msgspec.structs.replace(real, epoch=epoch)
            self.memory.kept.update({("epoch", key): epoch, ("holder", key): claim, claim.nonce: real})
            return claim

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if self.memory.kept.get(("holder", claim.key)) == claim:
            return unfenced(self.inner, claim, batch, base_seq)
        return super().append(claim, batch, base_seq)

    def release(self, claim: WriterClaim) -> None:
        with self.memory.lock:
            if self.memory.kept.get(("holder", claim.key)) == claim:
                del self.memory.kept["holder", claim.key]
        super().release(claim)


class _EpochReadThenWrite(_Renaming):
    """Reads the epoch, raises it, and stores it in a second step."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        head = self.inner.head(key)
        epoch = 1 if head is None else head.epoch + 1
        time.sleep(GAP_S)
        real = self.inner.claim(key, writer_id, replacing=replacing)
        self.memory.kept[real.nonce] = real
        return msgspec.structs.replace(real, epoch=min(epoch, real.epoch))


EPOCH_IN_PROCESS: Final = Mutant(
    "epoch-in-process",
    "epoch and holder are kept in the memory of the process, so that two processes write side by side",
    wrapping(journal=_EpochInProcess),
    base=FILES,
)
EPOCH_READ_THEN_WRITE: Final = Mutant(
    "epoch-read-then-write",
    "the epoch is read, raised and stored in two steps: two claims at once get the same one",
    wrapping(journal=_EpochReadThenWrite),
)


# --------------------------------------------------------------------------------------------------------- conditions


class _CheckThenClaim(BadJournal):
    """Checks what a claim is to replace, and claims in a second step."""

    condition: type[Expect | ClaimInfo]

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        if replacing is ANY or not isinstance(replacing, self.condition):
            return self.inner.claim(key, writer_id, replacing=replacing)
        head = self.inner.head(key)
        holder = None if head is None else head.claim
        if holder != (replacing if isinstance(replacing, ClaimInfo) else None):
            raise WriterBusy("somebody else holds it", holder=holder, key=key.name)
        time.sleep(GAP_S)
        return self.inner.claim(key, writer_id)


class _CheckFree(_CheckThenClaim):
    condition = Expect


class _CheckHolder(_CheckThenClaim):
    condition = ClaimInfo


FREE_CHECK_THEN_ACT: Final = Mutant(
    "free-check-then-act",
    "replacing=NONE looks whether the journal is free, and claims it in a second step",
    wrapping(journal=_CheckFree),
)
FREE_CHECK_THEN_ACT_ON_FILES: Final = Mutant(
    "free-check-then-act-on-files",
    "replacing=NONE looks whether the journal is free, and claims it in a second step, over processes",
    wrapping(journal=_CheckFree),
    base=FILES,
)
REPLACING_CHECK_THEN_ACT: Final = Mutant(
    "replacing-check-then-act",
    "replacing=claim compares the holder, and claims in a second step",
    wrapping(journal=_CheckHolder),
)


# ------------------------------------------------------------------------------------------------------- first claims


class _FirstFails(BadJournal):
    """Inserts where it found nothing; a faster one makes that a duplicate key."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        if self.inner.head(key) is None:
            time.sleep(GAP_S)
            if self.inner.head(key) is not None:
                raise BackendUnavailable("duplicate key", key=key.name)
        return self.inner.claim(key, writer_id, replacing=replacing)


class _FirstTwice(BadJournal):
    """Puts a new journal where it found none, whatever is there by then.

    It sleeps long enough that processes which start together on a busy machine meet.
    """

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        if self.inner.head(key) is None:
            time.sleep(0.1)
            self.inner.delete(key)
        return self.inner.claim(key, writer_id, replacing=replacing)


FIRST_CLAIM_FAILS: Final = Mutant(
    "first-claim-fails",
    "of several first claims at once all but one fail with the database's duplicate key",
    wrapping(journal=_FirstFails),
)
FIRST_CLAIM_TWICE: Final = Mutant(
    "first-claim-twice",
    "the first claim replaces whatever is there: two at once make two journals, one after the other",
    wrapping(journal=_FirstTwice),
)
FIRST_CLAIM_TWICE_ON_FILES: Final = Mutant(
    "first-claim-twice-on-files",
    "the first claim replaces whatever is there, over processes",
    wrapping(journal=_FirstTwice),
    base=FILES,
)


# --------------------------------------------------------------------------------------------------------------- seqs


class _SeqInProcess(Blind):
    """Keeps the next seq in the memory of the process, and gives it out without a look at the journal."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim = self.inner.claim(key, writer_id, replacing=replacing)
        with self.memory.lock:
            return msgspec.structs.replace(claim, last_seq=self.memory.kept.setdefault(key, claim.last_seq))

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with self.memory.lock:
            known = self.memory.kept.setdefault(claim.key, claim.last_seq)
            if known > base_seq:
                raise HeadConflict("moved", last_seq=known, base_seq=base_seq, key=claim.key.name)
            head = self.inner.head(claim.key)
            receipt = self.inner.append(claim, batch, base_seq if head is None else head.last_seq)
            if receipt.replayed:
                return receipt
            self.memory.kept[claim.key] = known + len(batch.events)
            return msgspec.structs.replace(receipt, first_seq=known + 1, last_seq=known + len(batch.events))


SEQ_CACHED_IN_PROCESS: Final = Mutant(
    "seq-cached-in-process",
    "two processes each keep the next seq in their memory: 105 doubles in 600 appends",
    wrapping(journal=_SeqInProcess),
    base=FILES,
)
