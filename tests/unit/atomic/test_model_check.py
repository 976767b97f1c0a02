"""The protocol holds for random schedules of the real store, and each left-out rule breaks it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from honest_storage import KEY, batch
from msgspec.structs import replace
from stage import Stage

import statebook.atomic_journal
import statebook.plan
from statebook.atomic_cursors import CursorRecords
from statebook.atomic_head import StoredHead, decode_head
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_reader import JournalReader, thread_scope
from statebook.codec import decode_event_ids
from statebook.collector import Collector
from statebook.errors import (
    BackendUnavailable,
    BatchConflict,
    DataError,
    HeadConflict,
    OutcomeUnknown,
    Trimmed,
    WriterFenced,
)
from statebook.index_tree import BlobMissing, Shape
from statebook.model import Batch, Receipt, WriterClaim
from statebook.plan import Done, Refuse

SHAPE = Shape(tail_bytes_max=1_100, references_max=3)
STEPS = 600


class Trial:
    """Two writers, a reader, an exporter, a collector and a trimmer over one stage, and what they were told."""

    def __init__(self, seed: int) -> None:
        self.stage = Stage(seed)
        self.rng = self.stage.rng
        self.violations: list[str] = []
        self.sent: dict[str, Batch] = {}
        self.sent_epochs: dict[str, set[int]] = {}
        self.acked: dict[str, Receipt] = {}
        self.absent: set[str] = set()
        self.seen: dict[int, str] = {}
        self.exported = 0

    def fresh(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    def store(self) -> AtomicThreadJournalStore:
        return AtomicThreadJournalStore(
            self.stage,
            new_nonce=self.fresh,
            new_journal_id=self.fresh,
            pause=lambda attempt: None,
            shape=SHAPE,
        )

    def run(self) -> list[str]:
        self.store().claim(KEY, "first")
        try:
            self.stage.play(self.actors(), STEPS)
            self.check()
        except (DataError, BlobMissing) as error:
            self.violations.append(f"data: {error!r}")
        return self.violations

    # ---------------------------------------------------------------------------------------------------- the actors

    def actors(self) -> list[Callable[[], None]]:
        return [self.writer(1), self.writer(2), self.reader, self.exporter, self.collector, self.trimmer]

    def writer(self, number: int) -> Callable[[], None]:
        def play() -> None:
            store = self.store()
            numbers = itertools.count()
            while True:
                try:
                    claim = store.claim(KEY, f"writer-{number}")
                except (OutcomeUnknown, BackendUnavailable):
                    continue
                self.write(store, claim, (f"w{number}-{next(numbers)}" for _ in range(self.rng.randrange(1, 8))))

        return play

    def write(self, store: AtomicThreadJournalStore, claim: WriterClaim, names: Iterator[str]) -> None:
        base = claim.last_seq
        for name in names:
            sent = self.sent[name] = batch(name, self.rng.randrange(1, 4))
            self.sent_epochs.setdefault(name, set()).add(claim.epoch)
            receipt = self.append(store, claim, sent, base)
            if receipt is None:
                return
            if self.rng.random() < 0.2:
                self.send_again(store, claim, sent, base)
            base = receipt.last_seq

    def append(self, store: AtomicThreadJournalStore, claim: WriterClaim, sent: Batch, base: int) -> Receipt | None:
        try:
            receipt = store.append(claim, sent, base)
        except WriterFenced as error:
            if error.committed is None:
                self.absent.add(sent.batch_id)
            else:
                self.acked[sent.batch_id] = error.committed
            return None
        except (HeadConflict, BackendUnavailable):
            self.absent.add(sent.batch_id)
            return None
        except BatchConflict as error:
            self.violations.append(f"conflict with itself: {error}")
            return None
        except OutcomeUnknown as error:
            if (error.batch_id, error.base_seq) != (sent.batch_id, base):
                self.violations.append(f"the unknown outcome names {error.batch_id} at {error.base_seq}")
            return self.settle(store, claim, sent, base)
        self.acked[sent.batch_id] = receipt
        return receipt

    def settle(self, store: AtomicThreadJournalStore, claim: WriterClaim, sent: Batch, base: int) -> Receipt | None:
        for _ in range(100):
            try:
                receipt = store.settle(claim, sent.batch_id, base)
            except (OutcomeUnknown, BackendUnavailable):
                continue
            except Trimmed:
                return None
            if receipt is None:
                self.absent.add(sent.batch_id)
            else:
                self.acked[sent.batch_id] = receipt
            return receipt
        return None

    def send_again(self, store: AtomicThreadJournalStore, claim: WriterClaim, sent: Batch, base: int) -> None:
        try:
            again = store.append(claim, sent, base)
        except WriterFenced as error:
            if error.committed is None:
                self.violations.append(f"fenced, and the receipt of {sent.batch_id} is lost")
        except HeadConflict:
            self.violations.append(f"{sent.batch_id} is committed and conflicts")
        except (OutcomeUnknown, BackendUnavailable):
            pass
        else:
            if again.first_seq != self.acked[sent.batch_id].first_seq:
                self.violations.append(f"{sent.batch_id} has two receipts")

    def reader(self) -> None:
        store = self.store()
        at = 0
        while True:
            try:
                page = store.read_after(KEY, at, self.rng.randrange(1, 9))
            except Trimmed as error:
                at = (error.first_seq or 0) - 1
                continue
            except BackendUnavailable:
                continue
            for event in page.events:
                if event.seq != at + 1:
                    self.violations.append(f"read {event.seq} after {at}")
                at = event.seq
                self.seen[at] = event.event_id

    def exporter(self) -> None:
        """Open cursors and advance them: no trim passes one whose outcome is known (LIFE-2)."""
        store = self.store()
        for number in itertools.count():
            try:
                cursor = store.open_cursor(KEY, f"exporter-{number}")
                for _ in range(self.rng.randrange(1, 6)):
                    page = store.read_after(KEY, cursor.acked_seq, self.rng.randrange(1, 20))
                    cursor = store.advance_cursor(cursor, cursor.acked_seq + len(page.events))
                    if self.rng.random() < 0.3:
                        cursor = store.open_cursor(KEY, cursor.exporter)
                self.exported += cursor.acked_seq
                # The exporter is done for ever, and holds no trim up any more.
                head = store.head(KEY)
                assert head is not None
                store.reset_cursor(KEY, cursor.exporter, head.last_seq, expected_version=cursor.version)
                self.stage.heads.pop(f"c/{KEY.name}/{cursor.exporter}")
            except (OutcomeUnknown, BackendUnavailable):
                self.stage.heads.pop(f"c/{KEY.name}/exporter-{number}", None)
            except Trimmed as error:
                self.violations.append(f"a trim has passed a cursor: {error}")

    def collector(self) -> None:
        store = self.store()
        while True:
            with suppress(OutcomeUnknown, BackendUnavailable):
                store.collect(KEY)

    def trimmer(self) -> None:
        store = self.store()
        while True:
            head = store.head(KEY)
            try:
                if head is not None and self.rng.random() < 0.2:
                    store.trim(KEY, max(1, head.last_seq - self.rng.randrange(60)))
            except (OutcomeUnknown, BackendUnavailable):
                pass

    # ----------------------------------------------------------------------------------------------------- the check

    def check(self) -> None:
        store = self.store()
        self.violations += [f"verify: {finding}" for finding in store.verify(KEY, deep=True).findings]
        record = self.stage.read_head(thread_scope(KEY))
        assert record is not None
        head = decode_head(record.data, KEY, KEY.name)
        there: dict[int, str] = {}
        epoch = 0
        for line in JournalReader(self.stage, KEY).batches(head, head.state.first_seq):
            batch_id, event_ids = decode_event_ids(bytes(line.body))
            there.update(enumerate(event_ids, line.first))
            if line.epoch < epoch or line.epoch not in self.sent_epochs[batch_id]:
                self.violations.append(f"zombie: {batch_id} of {line.epoch} after {epoch}")
            epoch = line.epoch
        self.check_told(there, head.state.first_seq)

    def check_told(self, there: dict[int, str], first_seq: int) -> None:
        for seq, event_id in self.seen.items():
            if seq >= first_seq and there.get(seq) != event_id:
                self.violations.append(f"read {event_id} at {seq}, which now is {there.get(seq)}")
        if len(set(there.values())) != len(there):
            self.violations.append("an event is there twice")
        known = {**self.seen, **there}
        for batch_id, receipt in self.acked.items():
            for seq, event in enumerate(self.sent[batch_id].events, receipt.first_seq):
                if seq >= first_seq and there.get(seq) != event.event_id:
                    self.violations.append(f"acknowledged {event.event_id} is not at {seq}")
        present = set(known.values())
        for batch_id in self.absent - self.acked.keys():
            if any(event.event_id in present for event in self.sent[batch_id].events):
                self.violations.append(f"absent: {batch_id} was reported so and is there")


@pytest.mark.parametrize("block", range(4))
def test_writers_a_reader_an_exporter_a_collector_and_a_trimmer_keep_every_promise(block: int) -> None:
    folded = trimmed = acknowledged = exported = 0
    for seed in range(block * 80, block * 80 + 80):
        trial = Trial(seed)
        assert trial.run() == [], f"seed {seed}"
        head = trial.store().head(KEY)
        assert head is not None
        folded += any(scope == thread_scope(KEY) for scope, _ in trial.stage.blobs)
        trimmed += head.first_seq > 1
        acknowledged += len(trial.acked)
        exported += trial.exported > 0
    # The schedules are no proof of anything unless segments, trims and many batches occurred in them.
    assert folded > 40
    assert trimmed > 15
    assert acknowledged > 80 * 5
    assert exported > 15


def broken_in_some_schedule(how: str) -> bool:
    return any(violation.startswith(how) for seed in range(300) for violation in Trial(seed).run())


def test_heads_without_nonce_and_generation_break_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = StoredHead.encode

    def without(head: StoredHead) -> bytes:
        return encode(head.moved(replace(head.state, nonce="", generation=0)))

    monkeypatch.setattr(StoredHead, "encode", without)
    assert broken_in_some_schedule("absent")


def test_without_the_barrier_the_collector_breaks_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collector, "_barrier", lambda self, key, head, token: True)
    assert broken_in_some_schedule("data")


def test_settling_by_a_read_breaks_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_read(head, claim, base_seq, *, placed, nonce):  # type: ignore[no-untyped-def]
        decision = statebook.plan.plan_settle(head, claim, base_seq, placed=placed, nonce=nonce)
        return decision if isinstance(decision, (Done, Refuse)) else Done(None)

    monkeypatch.setattr(statebook.atomic_journal, "plan_settle", by_read)
    assert broken_in_some_schedule("absent")


def test_a_fence_that_is_checked_at_claim_only_breaks_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statebook.plan, "is_current", lambda head, claim: head is not None)
    assert broken_in_some_schedule("zombie")


def test_a_new_cursor_that_does_not_look_at_the_head_again_is_passed_by_a_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorRecords, "_passed_by_trim", lambda self, cursor: False)
    assert broken_in_some_schedule("a trim has passed a cursor")
