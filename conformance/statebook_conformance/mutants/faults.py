"""Mutants of level 3: right as long as nothing goes wrong, and wrong when a process dies or an answer is lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord
from statebook.codec import digest, encode_batch
from statebook.errors import BackendUnavailable, JournalRegressed, LimitExceeded, OutcomeUnknown
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.model import (
    ABSENT,
    ANY,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    ExpectedVersion,
    ExportCursor,
    JournalHead,
    Receipt,
    WriterClaim,
)
from statebook_conformance.mutants.cursor import wrapped
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal, ForwardState
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.over_atomic import over_atomic
from statebook_conformance.mutants.wrapping import wrapping

_FILES: Final = "file://{directory}"
_GAP_S: Final = 0.02
"""How long the second step of a write takes to follow the first: a kill falls between them."""


def _made_up(claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
    sha256 = digest(encode_batch(batch))
    last_seq = base_seq + len(batch.events)
    return Receipt(batch.batch_id, claim.journal_id, base_seq + 1, last_seq, claim.epoch, sha256)


class _HalfBatches(ForwardJournal):
    """Writes the first event of a batch, then the others."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if len(batch.events) < 2:
            return super().append(claim, batch, base_seq)
        first = super().append(claim, Batch(f"{batch.batch_id}-first", batch.events[:1]), base_seq)
        time.sleep(_GAP_S)
        receipt = super().append(claim, Batch(batch.batch_id, batch.events[1:]), first.last_seq)
        return msgspec.structs.replace(receipt, first_seq=first.first_seq)


class _OverwritesInTwoSteps(ForwardState):
    """Removes the old value, then writes the new one."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        if isinstance(expected, int):
            super().delete(slot, expected=expected)
            time.sleep(_GAP_S)
            return super().save(slot, value, expected=ABSENT)
        return super().save(slot, value, expected=expected)


class _EpochInTheProcess(ForwardJournal):
    """Stores the first claim of a process; the epochs of its later ones are counted in the process only."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._stored: dict[str, WriterClaim] = {}
        self._last: dict[str, WriterClaim] = {}

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        last = self._last.get(key.name)
        head = self.inner.head(key)
        if last is None or head is None:
            claim = self._stored[key.name] = super().claim(key, writer_id, replacing=replacing)
        else:
            claim = msgspec.structs.replace(last, epoch=last.epoch + 1, last_seq=head.last_seq)
        self._last[key.name] = claim
        return claim

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return super().append(self._stored.get(claim.key.name, claim), batch, base_seq)

    def release(self, claim: WriterClaim) -> None:
        """Nothing: the next claim of this process is only counted."""


class _TrimInTheProcess(ForwardJournal):
    """Remembers what was trimmed, and does it at close."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._trims: dict[ThreadKey, int] = {}

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        head = self.inner.head(key)
        if head is None:
            return super().trim(key, before_seq)
        self._trims[key] = max(before_seq, self._trims.get(key, 1))
        return msgspec.structs.replace(head, first_seq=max(head.first_seq, self._trims[key]))

    def close(self) -> None:
        for key, before_seq in self._trims.items():
            self.inner.trim(key, before_seq)
        self._trims.clear()
        super().close()


class _CursorRunsAhead(ForwardJournal):
    """Stores the next event as acknowledged as well: the one that is handed out next."""

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        head = self.inner.head(cursor.key)
        ahead = to_seq if head is None else min(to_seq + 1, head.last_seq)
        return msgspec.structs.replace(super().advance_cursor(cursor, ahead), acked_seq=to_seq)


class _CommitsLater(ForwardAtomic):
    """Answers a commit, and writes it when the next call comes."""

    def __init__(self, inner: AtomicJournalStorage) -> None:
        super().__init__(inner)
        self._held: tuple[str, str | None, bytes, Mapping[str, bytes] | None, str] | None = None
        self._tokens: dict[str, str] = {}
        self._count = 0

    def flush(self) -> None:
        """Write what is held."""
        held, self._held = self._held, None
        if held is None:
            return
        scope, expected, head, blobs, token = held
        answer = self.inner.commit(scope, expected, head, blobs)
        if not isinstance(answer, CommitConflict):
            self._tokens[token] = answer

    def read_head(self, scope: str) -> HeadRecord | None:
        self.flush()
        return super().read_head(scope)

    def read_blob(self, scope: str, name: str) -> bytes | None:
        self.flush()
        return super().read_blob(scope, name)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        self.flush()
        self._count += 1
        token = f"held-{self._count}"
        self._held = scope, self._tokens.get(expected or "", expected), head, blobs, token
        return token

    def close(self) -> None:
        self.flush()
        super().close()


class _UnknownIsUnavailable(ForwardJournal):
    """Takes every time-out for a refusal."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except OutcomeUnknown as error:
            raise BackendUnavailable("the storage did not answer in time", key=claim.key.name) from error


class _UnavailableBackend(ForwardBackend):
    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return _UnknownIsUnavailable(super().journal_over(storage))


class _OldCopyAccepted(ForwardJournal):
    """Believes the journal that it finds, however short it is."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except JournalRegressed as error:
            return super().read_after(key, error.last_seq or 0, limit)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except JournalRegressed as error:
            return super().append(claim, batch, error.last_seq or 0)


class _FullDiskSwallowed(ForwardJournal):
    """Logs an error of a write, and goes on."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except (BackendUnavailable, OutcomeUnknown, LimitExceeded):
            return _made_up(claim, batch, base_seq)


HALF_BATCH_AFTER_KILL: Final = Mutant(
    "half-batch-after-kill",
    "a batch is written in two steps, and a process dies between them",
    wrapped(_HalfBatches),
    base=_FILES,
)
OVERWRITE_IN_TWO_STEPS: Final = Mutant(
    "overwrite-in-two-steps",
    "a value is removed before the new one is written",
    wrapping(state=lambda inner, _: _OverwritesInTwoSteps(inner)),
    base=_FILES,
)
EPOCH_IN_THE_PROCESS: Final = Mutant(
    "epoch-in-the-process", "epochs are counted in the process that claims", wrapped(_EpochInTheProcess), base=_FILES
)
TRIM_IN_THE_PROCESS: Final = Mutant(
    "trim-kept-in-the-process", "a trim is answered, and done at close", wrapped(_TrimInTheProcess), base=_FILES
)
CURSOR_RUNS_AHEAD: Final = Mutant(
    "cursor-runs-ahead", "the stored cursor is one event ahead of the answer", wrapped(_CursorRunsAhead), base=_FILES
)
COMMITS_LATER: Final = Mutant(
    "commit-written-at-the-next-call",
    "a commit of the atomic storage is answered before it is written",
    wrapping(atomic=lambda inner, _: _CommitsLater(inner)),
    base=_FILES,
)
UNKNOWN_IS_UNAVAILABLE: Final = Mutant(
    "unknown-reported-as-unavailable",
    "an append that timed out is reported as certainly not applied",
    _UnavailableBackend,
)
OLD_COPY_ACCEPTED: Final = Mutant(
    "old-copy-accepted",
    "readers and writers that have seen more go on with the shorter journal of an old copy",
    over_atomic(journal=_OldCopyAccepted),
)
FULL_DISK_SWALLOWED: Final = Mutant(
    "full-disk-swallowed", "an append that the disk refused is acknowledged", wrapped(_FullDiskSwallowed), base=_FILES
)
