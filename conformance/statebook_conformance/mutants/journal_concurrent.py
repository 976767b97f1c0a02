"""Mutants of appends and reads that only show where calls meet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from statebook.errors import (
    BackendUnavailable,
    HeadConflict,
    JournalRegressed,
    StatebookError,
    StoreClosed,
    VersionConflict,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.model import (
    ABSENT,
    AppendOutcome,
    AppendRequest,
    Batch,
    EventPage,
    Receipt,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.takeover import FILES, GAP_S, Blind
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping
from statebook_conformance.target import TargetBackend

_COPY: Final = "~again"


class Doubling(Blind):
    """Can store a batch once more; readers see the same event ids twice."""

    def again(self, claim: WriterClaim, batch: Batch) -> Receipt:
        """Store a batch behind the end, whatever is there."""
        events = tuple(msgspec.structs.replace(event, event_id=event.event_id + _COPY) for event in batch.events)
        copy = Batch(batch.batch_id + _COPY, events)
        head = self.inner.head(claim.key)
        receipt = self.inner.append(claim, copy, 0 if head is None else head.last_seq)
        return msgspec.structs.replace(receipt, batch_id=batch.batch_id)

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = self.inner.read_after(key, seq, limit)
        events = tuple(
            msgspec.structs.replace(event, event_id=event.event_id.removesuffix(_COPY)) for event in page.events
        )
        return msgspec.structs.replace(page, events=events)


class _SendsAgain(Doubling):
    """A driver that sends every fourth write again, as if its reply had been lost."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = self.inner.append(claim, batch, base_seq)
        with self.memory.lock:
            count = self.memory.kept["sent"] = self.memory.kept.get("sent", 0) + 1
        if count % 4 == 0 and not receipt.replayed:
            try:
                self.again(claim, batch)
            except (WriterFenced, HeadConflict):
                return receipt
        return receipt


class _OwnAppendIsConflict(Blind):
    """A driver that sends every fourth write again, and believes the answer to the second one."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = self.inner.append(claim, batch, base_seq)
        with self.memory.lock:
            count = self.memory.kept["sent"] = self.memory.kept.get("sent", 0) + 1
        if count % 4 == 0 and not receipt.replayed:
            raise HeadConflict("moved", last_seq=receipt.last_seq, base_seq=base_seq, key=claim.key.name)
        return receipt


class _DedupeCheckThenAct(Doubling):
    """Looks for the batch id among those it knows, and stores the batch in a second step."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        known = (claim.key, batch.batch_id) in self.memory.kept
        if not known:
            time.sleep(GAP_S)
        receipt = self.inner.append(claim, batch, base_seq)
        self.memory.kept[claim.key, batch.batch_id] = True
        return receipt if known or not receipt.replayed else self.again(claim, batch)


DRIVER_SENDS_AGAIN: Final = Mutant(
    "driver-sends-again",
    "the driver sends a write again by itself after a lost reply, and the batch is stored twice",
    wrapping(journal=_SendsAgain),
)
OWN_APPEND_IS_CONFLICT: Final = Mutant(
    "own-append-is-conflict",
    "the driver sends a write again by itself, and reports a conflict with its own success",
    wrapping(journal=_OwnAppendIsConflict),
)
DEDUPE_CHECK_THEN_ACT: Final = Mutant(
    "dedupe-check-then-act",
    "the batch id is looked for, and the batch stored in a second step: twice, where it is sent twice at once",
    wrapping(journal=_DedupeCheckThenAct),
)
DEDUPE_IN_PROCESS: Final = Mutant(
    "dedupe-in-process",
    "batch ids are remembered by the process that stored them: another one stores the batch again",
    wrapping(journal=_DedupeCheckThenAct),
    base=FILES,
)


# --------------------------------------------------------------------------------------------------------------- seqs


class _InParts(Blind):
    """Stores the events of a batch one by one."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt = self.inner.append(claim, Batch(batch.batch_id, batch.events[:1]), base_seq)
        first, replayed = receipt.first_seq, receipt.replayed
        for place, event in enumerate(batch.events[1:], 1):
            time.sleep(GAP_S)
            part = Batch(f"{batch.batch_id}/{place}", (event,))
            receipt = self.inner.append(claim, part, base_seq + place)
        return msgspec.structs.replace(receipt, batch_id=batch.batch_id, first_seq=first, replayed=replayed)


class _OutOfOrder(Blind):
    """Gives the seq at once and shows the batch later: the next one can be seen before it."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        ids = {event.event_id for event in batch.events}
        with self.memory.lock:
            hidden = self.memory.kept.setdefault("hidden", set())
            hidden.update(ids)
        try:
            receipt = self.inner.append(claim, batch, base_seq)
            time.sleep(2 * GAP_S)
        finally:
            with self.memory.lock:
                hidden.difference_update(ids)
        return receipt

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        with self.memory.lock:
            hidden = set(self.memory.kept.get("hidden", ()))
        page = self.inner.read_after(key, seq, limit)
        events = tuple(event for event in page.events if event.event_id not in hidden)
        last = page.last_seq if page.has_more else events[-1].seq if events else seq
        return EventPage(events, page.has_more and bool(events), last)


class _LateCommitMissed(BadJournal):
    """Reads the events of a page, and then where the journal ends: a commit in between counts as read."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = self.inner.read_after(key, seq, limit)
        time.sleep(GAP_S)
        head = self.inner.head(key)
        return page if head is None else msgspec.structs.replace(page, last_seq=head.last_seq)


class _SeqReadThenWrite(Blind):
    """Reads the next seq, raises it, and stores the batch in a second step, at whatever place is free then."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        if head is None or head.last_seq != base_seq:
            return self.inner.append(claim, batch, base_seq)
        time.sleep(GAP_S)
        try:
            return self.inner.append(claim, batch, base_seq)
        except HeadConflict as error:
            receipt = self.inner.append(claim, batch, error.last_seq or 0)
            last = base_seq + len(batch.events)
            return msgspec.structs.replace(receipt, first_seq=base_seq + 1, last_seq=last)


BATCH_IN_PARTS: Final = Mutant(
    "batch-in-parts",
    "the events of a batch are stored one by one: a reader sees a part of it, a takeover leaves a part of it",
    wrapping(journal=_InParts),
)
SEQ_VISIBLE_OUT_OF_ORDER: Final = Mutant(
    "seq-visible-out-of-order",
    "a seq is given before its commit: a reader sees n+1, and goes on behind it, while n is still to come",
    wrapping(journal=_OutOfOrder),
)
LATE_COMMIT_MISSED: Final = Mutant(
    "late-commit-missed",
    "a page's end is read after its events: a poller that goes on behind it misses what was committed in between",
    wrapping(journal=_LateCommitMissed),
)
SEQ_READ_THEN_WRITE: Final = Mutant(
    "seq-read-then-write",
    "the next seq is read, raised and stored in two steps: two batches are given the same one",
    wrapping(journal=_SeqReadThenWrite),
)


# --------------------------------------------------------------------------------------------------- independent ones


class _BusyLeaks(Blind):
    """Refuses a write with the engine's busy error while another one, of any journal, is under way."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        lock: Any = self.memory.kept.setdefault("busy", _Flag())
        if not lock.take():
            raise BackendUnavailable("database is locked", key=claim.key.name)
        try:
            time.sleep(GAP_S / 4)
            return self.inner.append(claim, batch, base_seq)
        finally:
            lock.give()


class _Flag:
    """A lock that is never waited for."""

    def __init__(self) -> None:
        self._taken: list[None] = [None]

    def take(self) -> bool:
        try:
            self._taken.pop()
        except IndexError:
            return False
        return True

    def give(self) -> None:
        self._taken.append(None)


class _BusyBetweenProcesses(ForwardBackend):
    """The same, with a flag in the store itself, that all processes see."""

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return _BusyByFlag(super().open_journal(require), self.inner)


class _BusyByFlag(Blind):
    def __init__(self, inner: ThreadJournalStore, backend: TargetBackend) -> None:
        super().__init__(inner, Memory())
        self._state = backend.open_state()
        self._slot = StateKey(None, "mutant", "busy")

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            self._state.save(self._slot, b"1", expected=ABSENT)
        except VersionConflict as error:
            raise BackendUnavailable("database is locked", key=claim.key.name) from error
        try:
            return self.inner.append(claim, batch, base_seq)
        finally:
            self._state.delete(self._slot)

    def close(self) -> None:
        self._state.close()
        self.inner.close()


class _MixedUp(Blind):
    """Keeps the claim of the call under way in the handle, where the next call finds it."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self.memory.kept["claim"] = claim
        time.sleep(GAP_S / 4)
        return self.inner.append(self.memory.kept["claim"], batch, base_seq)


BUSY_LEAKS: Final = Mutant(
    "busy-leaks",
    "a write beside another one is refused with `database is locked`",
    wrapping(journal=_BusyLeaks),
)
BUSY_LEAKS_BETWEEN_PROCESSES: Final = Mutant(
    "busy-leaks-between-processes",
    "a write beside one of another process is refused with `database is locked`",
    _BusyBetweenProcesses,
    base=FILES,
)
JOURNALS_MIXED_UP: Final = Mutant(
    "journals-mixed-up",
    "a handle keeps the journal of the call under way, and two calls at once get it wrong",
    wrapping(journal=_MixedUp),
)


# ------------------------------------------------------------------------------------------------------------- groups


class _SpoiltGroup(BadJournal):
    """Takes back a whole group where one member is refused."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        for request in requests:
            head = self.inner.head(request.claim.key)
            if head is None or head.claim != request.claim.info or head.last_seq > request.base_seq:
                return tuple(BackendUnavailable("the transaction was rolled back") for _ in requests)
        return self.inner.append_many(requests)


class _AnswersMixedUp(BadJournal):
    """Keeps the answers of the group under way in the handle, where another group's come to lie."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        self.memory.kept["answers"] = self.inner.append_many(requests)
        time.sleep(GAP_S)
        answers: Any = self.memory.kept["answers"]
        return tuple(answers)


class _GroupGoesOn(BadJournal):
    """Puts what stood behind a failed member where it fits."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        outcomes: list[AppendOutcome] = list(self.inner.append_many(requests))
        for place, (request, outcome) in enumerate(zip(requests, outcomes, strict=True)):
            if isinstance(outcome, JournalRegressed):
                outcomes[place] = self.inner.append(request.claim, request.batch, outcome.last_seq or 0)
        return tuple(outcomes)


REFUSED_SPOILS_GROUP: Final = Mutant(
    "refused-spoils-group",
    "one refused member rolls back the transaction of its whole group",
    wrapping(journal=_SpoiltGroup),
)
GROUP_ANSWERS_MIXED_UP: Final = Mutant(
    "group-answers-mixed-up",
    "two groups at once are given each other's answers",
    wrapping(journal=_AnswersMixedUp),
)
GROUP_GOES_ON: Final = Mutant(
    "group-goes-on",
    "a group leaves out a failed member and goes on behind it, so that batches of one writer change their order",
    wrapping(journal=_GroupGoesOn),
)


# ------------------------------------------------------------------------------------------- refusals, locks, closing


class _RefusalKeepsLock(Blind):
    """Gives its lock back where a write succeeded, and forgets it where the write was refused."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        lock: Any = self.memory.kept.setdefault("lock", _Flag())
        deadline = time.monotonic() + 0.3
        while not lock.take():
            if time.monotonic() > deadline:
                raise BackendUnavailable("lock wait timeout exceeded", key=claim.key.name)
            time.sleep(GAP_S)
        receipt = self.inner.append(claim, batch, base_seq)
        lock.give()
        return receipt


class _CloseBreaksCalls(Blind):
    """Takes the connection away under the call that uses it."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._connection: str | None = "connection"

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if self._connection is None:
            return self.inner.append(claim, batch, base_seq)
        time.sleep(GAP_S)
        self._connection.encode()
        return self.inner.append(claim, batch, base_seq)

    def close(self) -> None:
        self._connection = None
        self.inner.close()


class _CloseDropsBuffered(Blind):
    """Acknowledges an append at once and writes it with the next one; close() writes nothing more."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._held: dict[ThreadKey, AppendRequest] = {}

    def _flush(self, key: ThreadKey) -> None:
        request = self._held.pop(key, None)
        if request is not None:
            try:
                self.inner.append(request.claim, request.batch, request.base_seq)
            except StoreClosed:
                raise
            except StatebookError:
                return

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self._flush(claim.key)
        head = self.inner.head(claim.key)
        if head is None or head.claim != claim.info or head.last_seq != base_seq:
            return self.inner.append(claim, batch, base_seq)
        self._held[claim.key] = AppendRequest(claim, batch, base_seq)
        last = base_seq + len(batch.events)
        return Receipt(batch.batch_id, claim.journal_id, base_seq + 1, last, claim.epoch, "", replayed=False)

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        self._flush(key)
        return self.inner.read_after(key, seq, limit)


REFUSAL_KEEPS_LOCK: Final = Mutant(
    "refusal-keeps-lock",
    "a refused write leaves its lock, transaction or connection behind, and the next one waits for it",
    wrapping(journal=_RefusalKeepsLock),
)
CLOSE_BREAKS_CALLS: Final = Mutant(
    "close-breaks-calls",
    "close() takes the connection away under a call, which fails with an error of the language",
    wrapping(journal=_CloseBreaksCalls),
)
CLOSE_DROPS_BUFFERED: Final = Mutant(
    "close-drops-buffered",
    "an append is acknowledged while it is still in a buffer, and close() drops the buffer",
    wrapping(journal=_CloseDropsBuffered),
)
