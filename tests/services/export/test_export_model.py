"""Random exports over a store with injected faults, against a model of what an exporter promises (CURSOR-4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from statebook import Batch, CursorFenced, Event, Patience, StatebookError, ThreadKey
from statebook.threads import Delivery, JournalExporter, SkippedEvent

QUICK = Patience(resends_max=1, pause_s=0.0)


class Receiver:
    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.skips: set[int] = set()
        self.fail_at: int | None = None
        self.hold_back = 0

    def deliver(self, delivery: Delivery) -> int:
        for event in delivery.events:
            if event.seq == self.fail_at:
                raise OSError("down")
            self.taken.setdefault(event.event_id, event.seq)
        return max(delivery.events[0].seq - 1, delivery.last_seq - self.hold_back)

    def skipped(self, skipped: SkippedEvent) -> None:
        self.skips.add(skipped.seq)


def machine(new_faulty: Callable[[], Any]) -> type[RuleBasedStateMachine]:
    class Export(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store = new_faulty()
            self.key = ThreadKey(None, "agent", "session", uuid.uuid4().hex)
            self.claim = self.store.claim(self.key, "w")
            self.last = 0
            self.acked = 0
            self.newest = 0
            self.sink = Receiver()
            self.exporters = [self.make(), self.make()]

        def make(self) -> JournalExporter:
            return JournalExporter(self.store, self.key, "x", self.sink, page=3, patience=QUICK, sleep=lambda _: None)

        def fenced(self, which: int) -> None:
            assert which != self.newest

        def called(self, which: int, before: int | None) -> None:
            """An exporter that had not opened its cursor has done so now, or nobody knows."""
            if before is None:
                self.newest = -1 if self.exporters[which].acked_seq is None else which

        @rule(count=st.integers(1, 5))
        def write(self, count: int) -> None:
            events = tuple(
                Event(event_id=uuid.uuid4().hex, type="x", occurred_at=1, payload=b"1") for _ in range(count)
            )
            self.last = self.store.inner.append(self.claim, Batch(uuid.uuid4().hex, events), self.last).last_seq

        @rule(which=st.integers(0, 1), fail_at=st.none() | st.integers(1, 30), hold_back=st.integers(0, 2))
        def drain(self, which: int, fail_at: int | None, hold_back: int) -> None:
            self.sink.fail_at, self.sink.hold_back = fail_at, hold_back
            before = self.exporters[which].acked_seq
            try:
                report = self.exporters[which].drain()
            except CursorFenced:
                self.fenced(which)
            except (StatebookError, OSError):
                self.called(which, before)
            else:
                self.called(which, before)
                assert report.last_seq == self.last
                assert report.acked_seq >= self.last - hold_back

        @rule(which=st.integers(0, 1))
        def reopen(self, which: int) -> None:
            self.store.faults.clear()
            assert self.exporters[which].open().acked_seq >= self.acked
            self.newest = which

        @rule(which=st.integers(0, 1))
        def restart(self, which: int) -> None:
            self.exporters[which] = self.make()
            self.store.faults.clear()
            self.exporters[which].open()
            self.newest = which

        @rule(which=st.integers(0, 1))
        def skip(self, which: int) -> None:
            exporter = self.exporters[which]
            before = exporter.acked_seq
            try:
                exporter.skip((before or 0) + 1, "why")
            except CursorFenced:
                self.fenced(which)
            except (ValueError, StatebookError):
                self.called(which, before)
            else:
                self.called(which, before)

        @rule(
            name=st.sampled_from(["open_cursor", "advance_cursor", "read_after"]),
            faults=st.lists(st.sampled_from(["lost", "unknown", "refused"]), min_size=1, max_size=3),
        )
        def inject(self, name: str, faults: list[str]) -> None:
            self.store.faults.clear()
            self.store.fail(name, *faults)

        @invariant()
        def the_cursor_never_passes_what_was_taken_or_skipped_on_purpose(self) -> None:
            ids = self.store.ids(self.key)
            places = {self.sink.taken[i] for i in ids if i in self.sink.taken} | self.sink.skips
            known = max((exporter.acked_seq or 0) for exporter in self.exporters)
            assert known >= self.acked
            self.acked = known
            assert set(range(1, known + 1)) <= places
            assert list(self.sink.taken.values()) == sorted(self.sink.taken.values())

        def teardown(self) -> None:
            self.store.faults.clear()
            self.sink.fail_at, self.sink.hold_back = None, 0
            exporter = self.make()
            assert exporter.drain().complete
            places = set(self.sink.taken.values()) | self.sink.skips
            assert places == set(range(1, self.last + 1))

    return Export


def test_random_exports_keep_the_exporters_promises(new_faulty: Callable[[], Any]) -> None:
    run_state_machine_as_test(machine(new_faulty), settings=settings(max_examples=40, stateful_step_count=25))
