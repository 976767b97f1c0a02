"""The people of an adversarial schedule: writers, a reader, a trimmer and a collector on one journal, all recorded."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from statebook.atomic import AtomicJournalStorage
from statebook.errors import BackendUnavailable, HeadConflict, OutcomeUnknown, StatebookError, Trimmed, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, Receipt, WriterClaim
from statebook_conformance.adversary import Adversary, Fate, Scheduler
from statebook_conformance.checkers.history import JsonValue
from statebook_conformance.checkers.recorder import PendingOperation, Recorder
from statebook_conformance.writing import batch

BIG: Final = b'"' + b"x" * 24_000 + b'"'
"""A payload of which three fill a head's tail, so that the next batch makes a segment."""

BURST: Final = 66
"""So many small batches push everything before them out of the window (APPEND-1)."""

_FAULTS: Final = (Fate.BEFORE, Fate.AFTER, Fate.LATE, Fate.LATE)
_SETTLES_MAX: Final = 40


class Sent(msgspec.Struct, frozen=True):
    """A batch that is known to be in the journal, and the base that it was sent with."""

    batch: Batch
    base: int


class World:
    """One schedule on one journal.

    Attributes:
        scheduler: Says who goes on.
        adversary: The storage between them.
        recorder: Every operation, timed by the order of calls and returns.
        takeovers: Claims that were made.
        collected: Collector runs that came to an end.
    """

    def __init__(
        self,
        storage: AtomicJournalStorage,
        journal_over: Callable[[AtomicJournalStorage], ThreadJournalStore],
        key: ThreadKey,
        *,
        seed: int,
        steps: int,
        fault_rate: float,
    ) -> None:
        """Make a world.

        Args:
            storage: The real storage.
            journal_over: Makes a journal store over a client's handle.
            key: The thread.
            seed: The seed of every choice.
            steps: How long it lasts.
            fault_rate: How many commits do not come out fair.
        """
        self.rng = random.Random(f"schedule {seed}")
        self.adversary = Adversary(storage)
        self.scheduler = Scheduler(self.rng, steps=steps, pause_rate=0.02, between=self._between)
        self.recorder = Recorder(clock=count().__next__)
        self.takeovers = 0
        self.collected = 0
        self._journal_over = journal_over
        self._key = key
        self._fault_rate = fault_rate
        self._numbers = count()
        self._known: list[Sent] = []
        self._open: list[int] = []
        self._kept_from = 0
        self._interrupted = ""

    def run(self) -> None:
        """Play the schedule, then let every late request land.

        Raises:
            Exception: Whatever a store raised that nobody may raise here, such as `JournalCorrupt`.
        """
        self.scheduler.run(
            (
                ("writer-0", lambda: self._writer("writer-0")),
                ("writer-1", lambda: self._writer("writer-1")),
                ("reader", self._reader),
                ("trimmer", self._trimmer),
                ("collector", self._collector),
            )
        )
        self._land_all()

    def _land_all(self) -> None:
        while self.adversary.late:
            self.adversary.land(self.rng.randrange(len(self.adversary.late)))

    def _between(self) -> None:
        if self.adversary.late and self.rng.random() < 0.1:
            self.adversary.land(self.rng.randrange(len(self.adversary.late)))

    def _fate(self) -> Fate:
        if self.scheduler.over or self.scheduler.alone or self.rng.random() >= self._fault_rate:
            return Fate.FAIR
        fate = self.rng.choice(_FAULTS)
        if fate is Fate.LATE and self.rng.random() < 0.5:
            self.scheduler.favour(self.scheduler.running, 8)
        return fate

    def _gate(self, step: str) -> None:
        if step == "commit with blobs" and self.rng.random() < 0.2:
            self._interrupted = self.scheduler.running
            self.scheduler.favour("collector", 12)
        elif step == "delete_blobs" and self.rng.random() < 0.5:
            self.scheduler.favour(self._interrupted, 8)
        if step != "read_blob" or self.rng.random() < 0.1:
            self.scheduler.gate(step)

    def _store(self) -> ThreadJournalStore:
        return self._journal_over(self.adversary.client(gate=self._gate, fate=self._fate))

    # ------------------------------------------------------------------------------------------------------- people

    def _writer(self, name: str) -> None:
        store = self._store()
        while not self.scheduler.over:
            claim = self._claim(store, name)
            if claim is not None:
                self._hold(store, name, claim)
            self._wait(self.rng.choice((0, 0, 10, 30)))

    def _hold(self, store: ThreadJournalStore, name: str, claim: WriterClaim) -> None:
        """Write through one claim until it is lost, given back, or enough."""
        base = claim.last_seq
        for _ in range(self.rng.randrange(1, 8)):
            if self.scheduler.over:
                return
            if self.rng.random() < 0.08:
                found = self._burst(store, name, claim, base)
            else:
                payload = BIG if self.rng.random() < 0.75 else b"{}"
                number = next(self._numbers)
                size = self.rng.randrange(1, 4)
                checkpoint = 0 if self.rng.random() < 0.15 else None
                found = self._deliver(
                    store, name, claim, batch(f"{name}-{number}", size, payload=payload, checkpoint=checkpoint), base
                )
            if found is None:
                return
            base = found
            if self.rng.random() < 0.3 and not self._retry_old(store, name, claim):
                return
        if self.rng.random() < 0.3:
            self._release(store, name, claim)

    def _burst(self, store: ThreadJournalStore, name: str, claim: WriterClaim, base: int) -> int | None:
        """Many small batches while everybody else is paused and the network is well."""
        self.scheduler.alone = True
        try:
            at: int | None = base
            for _ in range(BURST):
                if at is not None:
                    at = self._deliver(store, name, claim, batch(f"{name}-{next(self._numbers)}"), at)
            return at
        finally:
            self.scheduler.alone = False

    def _deliver(self, store: ThreadJournalStore, name: str, claim: WriterClaim, new: Batch, base: int) -> int | None:
        """Send a batch until its outcome is known. The new base, or None where this claim is at its end."""
        self._open.append(base)
        try:
            answer = self._append(store, name, claim, new, base)
            resends = self.rng.choice((0, 0, 0, 1, 2))
            while isinstance(answer, OutcomeUnknown) and resends:
                resends -= 1
                answer = self._append(store, name, claim, new, base)
            settled = self._settle(store, name, claim, new, base) if isinstance(answer, OutcomeUnknown) else answer
        finally:
            self._open.remove(base)
        if isinstance(settled, Receipt):
            self._known.append(Sent(new, base))
            return settled.last_seq
        return None

    def _retry_old(self, store: ThreadJournalStore, name: str, claim: WriterClaim) -> bool:
        """Send a batch again that is in the journal, with its own base; False where this claim is at its end."""
        candidates = [sent for sent in self._known if sent.base >= self._kept_from]
        if not candidates:
            return True
        sent = self.rng.choice(candidates)
        self._open.append(sent.base)
        try:
            return isinstance(self._append(store, name, claim, sent.batch, sent.base), Receipt)
        finally:
            self._open.remove(sent.base)

    def _reader(self) -> None:
        store = self._store()
        after = 0
        while not self.scheduler.over:
            limit = self.rng.choice((1, 7, 100))
            with self.recorder.operation("reader", "read", "journal", {"after": after, "limit": limit}) as pending:
                try:
                    page = store.read_after(self._key, after, limit)
                except Trimmed as error:
                    pending.refused("Trimmed")
                    after = (error.first_seq or 1) - 1
                else:
                    pending.ok({"events": [[e.seq, e.event_id] for e in page.events], "has_more": page.has_more})
                    after = page.events[-1].seq if page.events and self.rng.random() < 0.9 else self._kept_from

    def _trimmer(self) -> None:
        store = self._store()
        while not self.scheduler.over:
            self._wait(self.rng.randrange(20, 60))
            head = store.head(self._key)
            if head is None:
                continue
            self._kept_from = min([head.last_seq, *self._open])
            before = self._kept_from + 1
            with self.recorder.operation("trimmer", "trim", "journal", {"before": before}) as pending:
                try:
                    pending.ok({"first_seq": store.trim(self._key, before).first_seq})
                except (OutcomeUnknown, BackendUnavailable) as error:
                    pending.unknown(type(error).__name__)

    def _collector(self) -> None:
        store = self._store()
        while not self.scheduler.over:
            self._wait(self.rng.randrange(1, 6))
            try:
                store.collect(self._key)
                self.collected += 1
            except (OutcomeUnknown, BackendUnavailable):
                continue

    def _wait(self, steps: int) -> None:
        for _ in range(steps):
            self.scheduler.gate("wait")

    # -------------------------------------------------------------------------------------------------------- calls

    def _claim(self, store: ThreadJournalStore, name: str) -> WriterClaim | None:
        with self.recorder.operation(name, "claim", "journal", {"writer": name, "replacing": "any"}) as pending:
            try:
                claim = store.claim(self._key, name)
            except OutcomeUnknown:
                pending.unknown("OutcomeUnknown")
                return None
            self.takeovers += 1
            pending.ok({"epoch": claim.epoch, "last_seq": claim.last_seq})
            return claim

    def _release(self, store: ThreadJournalStore, name: str, claim: WriterClaim) -> None:
        with self.recorder.operation(name, "release", "journal", {"epoch": claim.epoch}) as pending:
            try:
                store.release(claim)
                pending.ok()
            except OutcomeUnknown:
                pending.unknown("OutcomeUnknown")
            except WriterFenced:
                pending.refused("WriterFenced", {"committed": None})

    def _append(
        self, store: ThreadJournalStore, name: str, claim: WriterClaim, new: Batch, base: int
    ) -> Receipt | StatebookError:
        given: dict[str, JsonValue] = {
            "batch": new.batch_id,
            "events": [event.event_id for event in new.events],
            "base_seq": base,
            "epoch": claim.epoch,
        }
        with self.recorder.operation(name, "append", "journal", given) as pending:
            try:
                receipt = store.append(claim, new, base)
            except (BackendUnavailable, OutcomeUnknown) as error:
                pending.unknown(type(error).__name__)
                return OutcomeUnknown(str(error))
            except StatebookError as error:
                _refused(pending, error)
                return error
            pending.ok(receipt_fields(receipt))
            return receipt

    def _settle(
        self, store: ThreadJournalStore, name: str, claim: WriterClaim, new: Batch, base: int
    ) -> Receipt | None:
        for _ in range(_SETTLES_MAX):
            given: dict[str, JsonValue] = {"batch": new.batch_id, "base_seq": base}
            with self.recorder.operation(name, "settle", "journal", given) as pending:
                try:
                    receipt = store.settle(claim, new.batch_id, base)
                except (BackendUnavailable, OutcomeUnknown) as error:
                    pending.unknown(type(error).__name__)
                    continue
                pending.ok(None if receipt is None else receipt_fields(receipt))
            if receipt is None and self.rng.random() < 0.5:
                self._land_all()
            elif receipt is None:
                self._wait(self.rng.randrange(16))
            return receipt
        return None


def receipt_fields(receipt: Receipt) -> JsonValue:
    """A receipt in the words of the checkers."""
    return {
        "first": receipt.first_seq,
        "last": receipt.last_seq,
        "replayed": receipt.replayed,
        "epoch": receipt.epoch,
    }


def _refused(pending: PendingOperation, error: StatebookError) -> None:
    """Record a refusal with what it carried."""
    output: JsonValue = {"head": error.last_seq} if isinstance(error, HeadConflict) else None
    if isinstance(error, WriterFenced):
        output = {"committed": None if error.committed is None else receipt_fields(error.committed)}
    pending.refused(type(error).__name__, output)
