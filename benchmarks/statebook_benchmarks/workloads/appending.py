"""Workloads that append: batches, streams through a recorder, turns of an agent."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from statebook import ABSENT, StatebookError, StateKey, VersionConflict
from statebook.lanes import CommitLane, CommitLanes
from statebook.threads import BlockingInvocationRecorder
from statebook_benchmarks.content import Batches
from statebook_benchmarks.load import Outcome
from statebook_benchmarks.validity import Finding
from statebook_benchmarks.workloads.workload import Site, ThreadWriter, Workload

CHUNKS: Final = 32
"""Events of one streamed answer."""
CHUNK_BYTES: Final = 24
"""Characters of one chunk."""
TURN_EVENTS: Final = 8
"""Events of one turn, the checkpoint included."""


class AppendWorkload(Workload):
    """One batch an operation, through the store or through commit lanes."""

    def __init__(self, site: Site) -> None:
        self._parameters = site.parameters
        self.events_per_op = site.parameters.batch_events
        self._store = site.backend.open_journal()
        self._lanes = CommitLanes(self._store) if site.parameters.via == "lanes" else None
        self._writers = [
            ThreadWriter(self._store, f"{site.name}-{thread}", site.parameters)
            for thread in range(site.parameters.threads)
        ]
        self._open: dict[int, CommitLane] = {}

    def prepare(self) -> None:
        for writer in self._writers:
            writer.claim()
            if self._parameters.journal_len:
                writer.preload(self._parameters.journal_len, self._parameters.event_bytes)

    def __call__(self, thread: int) -> Outcome:
        writer = self._writers[thread]
        batch = writer.batches.next()
        if self._lanes is None:
            writer.append(batch)
            return Outcome.DONE
        lane = self._open.get(thread)
        if lane is None or lane.error is not None:
            lane = self._open[thread] = self._lane(self._lanes, writer, again=lane is not None)
        try:
            lane.submit(batch).result()
        except StatebookError as error:
            writer.failed(batch, error)
            raise
        writer.acknowledge(batch)
        return Outcome.DONE

    @staticmethod
    def _lane(lanes: CommitLanes, writer: ThreadWriter, *, again: bool) -> CommitLane:
        if again or writer.journal.held is None:
            writer.claim()
        claim = writer.journal.held
        assert claim is not None
        return lanes.open(claim)

    def settle_down(self) -> None:
        if self._lanes is not None:
            self._lanes.close()

    def check(self) -> list[Finding]:
        return [finding for writer in self._writers for finding in writer.check()]

    def close(self) -> None:
        self._store.close()


class StreamWorkload(Workload):
    """One streamed answer an operation: 32 events of one chunk each through a recorder, then a flush barrier."""

    events_per_op = CHUNKS

    def __init__(self, site: Site) -> None:
        self._store = site.backend.open_journal()
        self._lanes = CommitLanes(self._store)
        self._writers = [
            ThreadWriter(self._store, f"{site.name}-{thread}", site.parameters)
            for thread in range(site.parameters.threads)
        ]
        self._recorders: dict[int, BlockingInvocationRecorder] = {}
        self._numbers = [0] * site.parameters.threads
        self._name = site.name

    def prepare(self) -> None:
        for writer in self._writers:
            writer.claim()

    def __call__(self, thread: int) -> Outcome:
        writer = self._writers[thread]
        recorder = self._recorders.get(thread)
        if recorder is None or recorder.error is not None:
            recorder = self._recorders[thread] = self._recorder(writer, again=recorder is not None)
        sent = []
        try:
            for _ in range(CHUNKS):
                self._numbers[thread] += 1
                event_id = f"{self._name}-{thread}.{self._numbers[thread]}"
                recorder.append("message/chunk", "x" * CHUNK_BYTES, event_id=event_id)
                sent.append(event_id)
            recorder.flush()
        except StatebookError:
            writer.unknown.extend(sent)
            raise
        writer.note(sent)
        return Outcome.DONE

    def _recorder(self, writer: ThreadWriter, *, again: bool) -> BlockingInvocationRecorder:
        if again or writer.journal.held is None:
            writer.claim()
        claim = writer.journal.held
        assert claim is not None
        return BlockingInvocationRecorder(self._lanes.open(claim), run_id="bench")

    def settle_down(self) -> None:
        self._lanes.close()

    def check(self) -> list[Finding]:
        return [finding for writer in self._writers for finding in writer.check()]

    def close(self) -> None:
        self._store.close()


class _State(msgspec.Struct, frozen=True):
    turns: int
    memory: str


class TurnWorkload(Workload):
    """One turn an operation: load state, append 8 events with a checkpoint, save state where nobody else did."""

    events_per_op = TURN_EVENTS

    def __init__(self, site: Site) -> None:
        self._journals = site.backend.open_journal()
        self._states = site.backend.open_state()
        self._memory = "m" * site.parameters.event_bytes
        threads = range(site.parameters.threads)
        self._writers = [ThreadWriter(self._journals, f"{site.name}-{n}", site.parameters) for n in threads]
        for n, writer in enumerate(self._writers):
            writer.batches = Batches(
                f"{site.name}-{n}", events=TURN_EVENTS, event_bytes=site.parameters.event_bytes, checkpoint=True
            )
        self._slots = [StateKey("bench", f"{site.name}-{n}", "agent") for n in threads]
        self._saved = [0] * site.parameters.threads
        self._unknown = [0] * site.parameters.threads

    def prepare(self) -> None:
        for writer in self._writers:
            writer.claim()

    def __call__(self, thread: int) -> Outcome:
        slot = self._slots[thread]
        loaded = self._states.load(slot)
        turns = 0 if loaded is None else msgspec.json.decode(loaded.value, type=_State).turns
        writer = self._writers[thread]
        writer.append(writer.batches.next())
        value = json.dumps({"turns": turns + 1, "memory": self._memory}, separators=(",", ":")).encode()
        try:
            self._states.save(slot, value, expected=ABSENT if loaded is None else loaded.version)
        except VersionConflict:
            raise
        except StatebookError:
            self._unknown[thread] += 1
            raise
        self._saved[thread] += 1
        return Outcome.DONE

    def check(self) -> list[Finding]:
        findings = [finding for writer in self._writers for finding in writer.check()]
        for slot, saved, unknown in zip(self._slots, self._saved, self._unknown, strict=True):
            loaded = self._states.load(slot)
            turns = 0 if loaded is None else msgspec.json.decode(loaded.value, type=_State).turns
            if not saved <= turns <= saved + unknown:
                what = "loss" if turns < saved else "duplication"
                detail = f"{saved} saves were acknowledged, {unknown} unknown, and the state says {turns}"
                findings.append(Finding(what, slot.session_id, abs(turns - saved), detail))
        return findings

    def close(self) -> None:
        self._states.close()
        self._journals.close()
