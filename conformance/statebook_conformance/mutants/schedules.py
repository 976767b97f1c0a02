"""The eight mutants of the model check: each leaves one rule of the contract out of core's journal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

import msgspec

from statebook import atomic_reader, collector, index_tree, plan
from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord
from statebook.atomic_head import StoredHead, decode_head
from statebook.errors import HeadConflict, OutcomeUnknown, WriterFenced
from statebook.index_tree import Shape
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, Receipt, WriterClaim
from statebook.plan import Commit, Done, Refuse
from statebook.records import FrozenBatch, HeadState, JournalState
from statebook_conformance.mutants.core_copy import (
    CoreBackend,
    changed_core,
    core_copy,
    journal_class,
    wrapped_core,
)
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend

# -------------------------------------------------------------------------------------------------- one left-out line


def _is_open(head: HeadState | None, claim: WriterClaim) -> bool:
    """The fence without epoch and nonce."""
    return head is not None and head.state is JournalState.OPEN and head.journal_id == claim.journal_id


def _no_epoch_check(inner: TargetBackend) -> ForwardBackend:
    loose = core_copy("statebook.plan", is_current=_is_open, Commit=plan.Commit, Done=plan.Done, Refuse=plan.Refuse)
    return changed_core(plan_append=loose.plan_append)(inner)


EPOCH_CHECK_LEFT_OUT: Final = Mutant(
    "epoch-check-left-out",
    "an append compares neither epoch nor nonce of its claim, so that a writer goes on after a takeover",
    _no_epoch_check,
)


class _GivesUp(ForwardJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except OutcomeUnknown as error:
            head = self.head(claim.key)
            raise HeadConflict(
                "the write failed", last_seq=0 if head is None else head.last_seq, base_seq=base_seq
            ) from error


UNKNOWN_TAKEN_FOR_FAILURE: Final = Mutant(
    "unknown-taken-for-failure",
    "a lost reply is reported as a conflict: not written, though the request may have landed or will",
    wrapped_core(_GivesUp),
)


class _NoBarrier(collector.Collector):
    def _barrier(self, key: ThreadKey, head: StoredHead, token: str) -> bool:
        return True


COLLECTOR_WITHOUT_BARRIER: Final = Mutant(
    "collector-without-barrier",
    "the collector deletes what is not referenced without committing the head first, also blobs of a commit under way",
    changed_core(Collector=_NoBarrier),
)


def _settled_by_read(
    head: HeadState | None, claim: WriterClaim, base_seq: int, *, placed: Receipt | None, nonce: str
) -> Commit[HeadState] | Done[Receipt] | Done[None] | Refuse:
    decision = plan.plan_settle(head, claim, base_seq, placed=placed, nonce=nonce)
    return Done(None) if isinstance(decision, Commit) else decision


SETTLE_BY_READ: Final = Mutant(
    "settle-by-read",
    "settle says that a batch is absent because a read did not find it; the request lands afterwards",
    changed_core(plan_settle=_settled_by_read),
)


class _NoAnchor(atomic_reader.JournalReader):
    def batch_starting(self, head: StoredHead, first: int) -> None:
        return None


WINDOW_WITHOUT_ANCHOR: Final = Mutant(
    "window-without-anchor",
    "a batch is recognised among the last receipts only, not by its place behind its base",
    changed_core(JournalReader=_NoAnchor),
)


# ------------------------------------------------------------------------------------------------------ blob names


def _blob_names_kept(inner: TargetBackend) -> ForwardBackend:
    def verbatim(_: int, nonce: str) -> str:
        return nonce

    heads = core_copy("statebook.atomic_head", blob_name=verbatim, StoredHead=StoredHead)
    kept: dict[str, list[str]] = {}

    def extended(
        stored: StoredHead, state: HeadState, batch: FrozenBatch, new_nonce: Callable[[], str], shape: Shape
    ) -> tuple[StoredHead, dict[str, bytes]]:
        names = kept.setdefault(batch.digest, [])
        used = 0

        def name() -> str:
            nonlocal used
            if used == len(names):
                names.append(index_tree.blob_name(stored.state.generation, new_nonce()))
            used += 1
            return names[used - 1]

        made: tuple[StoredHead, dict[str, bytes]] = heads.extended(stored, state, batch, name, shape)
        return made

    return changed_core(extended=extended)(inner)


BLOB_NAME_USED_AGAIN: Final = Mutant(
    "blob-name-used-again",
    "a writer whose commit met a newer head tries again with the blobs that it has written already",
    _blob_names_kept,
)

# ---------------------------------------------------------------------------------------------------------- nonces


class _ContentTokens(ForwardAtomic):
    """Names a write by its content, as an ETag does."""

    def __init__(self, inner: AtomicJournalStorage, lock: Lock) -> None:
        super().__init__(inner)
        self._lock = lock

    def read_head(self, scope: str) -> HeadRecord | None:
        record = super().read_head(scope)
        return None if record is None else HeadRecord(record.data, _content(record.data))

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        with self._lock:
            record = super().read_head(scope)
            if (None if record is None else _content(record.data)) != expected:
                return COMMIT_CONFLICT
            token = super().commit(scope, None if record is None else record.token, head, blobs)
        return token if isinstance(token, CommitConflict) else _content(head)


def _content(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _BlankHeads(ForwardAtomic):
    """Stores journal heads without what makes each write another one."""

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        if scope.startswith("t/"):
            stored = decode_head(head, None, scope.removeprefix("t/"))
            head = stored.moved(msgspec.structs.replace(stored.state, generation=1, nonce="0" * 32)).encode()
        return super().commit(scope, expected, head, blobs)


def _no_nonce(inner: TargetBackend) -> ForwardBackend:
    lock = Lock()
    make = journal_class()

    def journal(storage: AtomicJournalStorage) -> ThreadJournalStore:
        return make(_BlankHeads(storage))

    return CoreBackend(inner, journal, lambda storage: _ContentTokens(storage, lock))


NO_NONCE: Final = Mutant(
    "no-nonce",
    "heads carry neither nonce nor generation on a store that names writes by content: A, B, A looks like no change",
    _no_nonce,
)

# ------------------------------------------------------------------------------------------------------------ reload


class _GoesOn(ForwardJournal):
    """Takes the claim that the head names now for its own, and the head's end for its base."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except (HeadConflict, WriterFenced):
            head = self.inner.head(claim.key)
            if head is None or head.claim is None:
                raise
            theirs = msgspec.structs.replace(
                claim, journal_id=head.journal_id, epoch=head.claim.epoch, nonce=head.claim.nonce
            )
            return super().append(theirs, batch, head.last_seq)


RELOAD_AND_CONTINUE: Final = Mutant(
    "reload-and-continue",
    "a fenced writer reads the head again by itself and goes on with what it finds there",
    wrapped_core(_GoesOn),
)
