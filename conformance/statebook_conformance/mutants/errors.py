"""Mutants of outcomes: errors that carry nothing or too much, locks and transactions that outlive a failed call."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final

from statebook.errors import HeadConflict, VersionConflict, WriterBusy, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey
from statebook.model import ANY, Batch, ExpectedVersion, Receipt, StateValue, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, BadState, Memory, wrapping


class _BareConflict(BadState):
    """Raises conflicts that say nothing."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except VersionConflict as error:
            raise VersionConflict("version conflict") from error


class _BareJournalErrors(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except (HeadConflict, WriterFenced, WriterBusy) as error:
            raise type(error)("conflict") from error


class _PayloadInError(BadState):
    """Shows the value that could not be saved."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except VersionConflict as error:
            raise VersionConflict(
                f"cannot save {value!r}", current_version=error.current_version, key=error.key
            ) from error


class _LockKept(BadState):
    """Takes a lock for each save, and lets go of it on the way out of a good one alone."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._lock = Lock()

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        self._lock.acquire()
        version = super().save(slot, value, expected=expected)
        self._lock.release()
        return version


class _LockKeptJournal(BadJournal):
    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._lock = Lock()

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self._lock.acquire()
        receipt = super().append(claim, batch, base_seq)
        self._lock.release()
        return receipt


class _NeverUnwound(BadState):
    """After a failed append the handle stays inside of its transaction: it sees only what was there then."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._stuck = False
        self._seen: dict[StateKey, StateValue | None] = {}

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        try:
            return super().append_list(slot, items, expected_length=expected_length)
        except VersionConflict:
            self._stuck = True
            raise

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        if self._stuck:
            self._seen[slot] = StateValue(value, version)
        return version

    def load(self, slot: StateKey) -> StateValue | None:
        return self._seen[slot] if self._stuck and slot in self._seen else super().load(slot)


BARE_CONFLICT: Final = Mutant(
    "bare-conflict", "a conflict is raised without the current version", wrapping(state=_BareConflict)
)
BARE_JOURNAL_ERRORS: Final = Mutant(
    "bare-journal-errors", "refusals of append are raised without head and epoch", wrapping(journal=_BareJournalErrors)
)
PAYLOAD_IN_ERROR: Final = Mutant(
    "payload-in-error", "the value that was refused stands in the error's text", wrapping(state=_PayloadInError)
)
LOCK_KEPT_AFTER_CONFLICT: Final = Mutant(
    "lock-kept-after-conflict", "a lock is not released when a save conflicts", wrapping(state=_LockKept)
)
LOCK_KEPT_AFTER_FENCING: Final = Mutant(
    "lock-kept-after-fencing", "a lock is not released when an append is refused", wrapping(journal=_LockKeptJournal)
)
UNWOUND_NEVER: Final = Mutant(
    "unwound-never",
    "a failed call leaves its transaction open, whose snapshot the next calls read",
    wrapping(state=_NeverUnwound),
)
