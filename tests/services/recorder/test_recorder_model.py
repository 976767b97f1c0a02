"""Random invocations over a store with injected faults, against a model of what a recorder promises (J17, J22)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from statebook import Patience, StatebookError, StoreClosed, ThreadKey, WriterFenced
from statebook.lanes import CommitLanes, LaneBounds
from statebook.threads import BlockingInvocationRecorder, EventDraft, RecorderBounds

QUICK = Patience(resends_max=1, pause_s=0.0)
FAULTS = st.sampled_from(["lost", "unknown", "refused", {0: "lost"}, {0: "unknown"}, {0: "refused"}])


def machine(new_faulty: Callable[[], Any]) -> type[RuleBasedStateMachine]:
    class Invocation(RuleBasedStateMachine):
        """`accepted` is what the recorder took, `durable` how much of it has been promised."""

        def __init__(self) -> None:
            super().__init__()
            self.store = new_faulty()
            self.key = ThreadKey(None, "agent", "session", uuid.uuid4().hex)
            self.lanes = CommitLanes(self.store, patience=QUICK, bounds=LaneBounds(group_batches_max=2))
            self.accepted: list[str] = []
            self.durable = 0
            self.recorder: BlockingInvocationRecorder
            self.stopped = self.ended = False
            self.begin()

        def begin(self) -> None:
            self.accepted = self.store.ids(self.key)
            self.durable = len(self.accepted)
            self.stopped = self.ended = False
            lane = self.lanes.open(self.store.inner.claim(self.key, "w"))
            bounds = RecorderBounds(batch_events_max=3)
            self.recorder = BlockingInvocationRecorder(lane, run_id="run", bounds=bounds)

        def call(self, action: Callable[[], Any], ids: list[str], *, waits: bool) -> None:
            try:
                action()
            except StatebookError as error:
                self.refused(error, ids, waits=waits)
                return
            assert not (self.stopped and waits)
            assert not (self.ended and ids)
            self.accepted += ids
            if waits:
                self.durable = len(self.accepted)

        def refused(self, error: StatebookError, ids: list[str], *, waits: bool) -> None:
            if self.ended:
                assert isinstance(error, StoreClosed | WriterFenced)
                return
            if self.stopped or (ids and not waits):
                assert isinstance(error, WriterFenced)
            elif waits:
                self.accepted += ids
            self.stopped = True

        def fresh(self, count: int) -> list[str]:
            return [uuid.uuid4().hex for _ in range(count)]

        @rule(flush=st.booleans())
        def append(self, flush: bool) -> None:
            ids = self.fresh(1)
            self.call(lambda: self.recorder.append("x", 1, flush=flush, event_id=ids[0]), ids, waits=False)

        @rule(count=st.integers(1, 4))
        def record(self, count: int) -> None:
            ids = self.fresh(count)
            drafts = [EventDraft("x", 1, event_id=event_id) for event_id in ids]
            self.call(lambda: self.recorder.record_together(*drafts), ids, waits=True)

        @rule()
        def flush(self) -> None:
            self.call(self.recorder.flush, [], waits=True)

        @rule(faults=st.lists(FAULTS, min_size=1, max_size=4))
        def inject(self, faults: list[Any]) -> None:
            self.store.faults.clear()
            self.store.fail("append_many", *faults)

        @rule()
        def fail_settling(self) -> None:
            self.store.fail("settle", "unknown")

        @precondition(lambda self: not self.ended)
        @rule()
        def end(self) -> None:
            self.call(self.recorder.end, [], waits=True)
            self.ended = True

        @precondition(lambda self: self.ended or self.stopped)
        @rule()
        def begin_again(self) -> None:
            self.store.faults.clear()
            self.quiet()
            self.begin()

        def quiet(self) -> None:
            self.recorder._core._lane.flush().exception(20.0)

        @invariant()
        def the_journal_is_a_prefix_of_what_was_accepted_with_all_that_was_promised(self) -> None:
            ids = self.store.ids(self.key)
            assert len(ids) >= self.durable
            assert ids == self.accepted[: len(ids)]
            assert self.store.overlaps == 0

        def teardown(self) -> None:
            assert self.lanes.close(deadline_s=20.0)

    return Invocation


def test_random_invocations_keep_the_recorders_promises(new_faulty: Callable[[], Any]) -> None:
    run_state_machine_as_test(machine(new_faulty), settings=settings(max_examples=40, stateful_step_count=25))
