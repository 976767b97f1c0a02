"""JournalProjection: what a journal says about its runs, steps and pending work (J6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from pydantic import BaseModel

from statebook.model import CHECKPOINT_TYPES, RecordedEvent
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry
from statebook.threads.events import ModelDispatch, ModelEnd, RunEnd, RunStart, StepEnd, StepPhase, StepStart
from statebook.threads.history import JournalReads
from statebook.threads.position import AgentExecutionPosition, PendingWork, Phase
from statebook.threads.progress import advance

RUNS_MAX: Final = 1_000
"""How many runs and how many steps a projection keeps by default: the newest ones."""


class RunView(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        run_id: The run, or None where its events name none.
        turn_id: The turn that it began in.
        continues: The run that it continues, or None.
        started_seq: Where it began.
        ended_seq: Where it ended, or None.
        outcome: How it ended, or None.
    """

    run_id: str | None
    turn_id: str | None
    continues: str | None
    started_seq: int
    ended_seq: int | None = None
    outcome: str | None = None


class StepView(msgspec.Struct, frozen=True):
    """A step of a run.

    Attributes:
        run_id: The run.
        step: Its index.
        phase: The last phase that it reached.
        started_seq: Where it began.
        ended_seq: Where it ended, or None.
        outcome: How it ended, or None.
    """

    run_id: str | None
    step: int
    phase: Phase
    started_seq: int
    ended_seq: int | None = None
    outcome: str | None = None


class CheckpointView(msgspec.Struct, frozen=True):
    """The last checkpoint.

    Attributes:
        seq: Its event's seq.
        event_id: Its event.
        type: `state/checkpoint` or `state/initialized`.
        checkpoint: The state and its position.
    """

    seq: int
    event_id: str
    type: str
    checkpoint: Checkpoint


class JournalProjection(msgspec.Struct, frozen=True):
    """A journal's events, put together. A value: `advanced` gives a new one.

    Attributes:
        as_of_seq: Everything up to this seq is in it.
        position: Where execution stands, with the pending work.
        runs: The newest runs, oldest first.
        steps: The newest steps, oldest first.
        checkpoint: The last checkpoint, or None.
        runs_max: How many runs, and how many steps, are kept.
    """

    as_of_seq: int = 0
    position: AgentExecutionPosition = AgentExecutionPosition()
    runs: tuple[RunView, ...] = ()
    steps: tuple[StepView, ...] = ()
    checkpoint: CheckpointView | None = None
    runs_max: int = RUNS_MAX

    @property
    def phase(self) -> Phase | None:
        """The phase that the current run is in, or None where there is none to go on with."""
        return self.position.phase

    @property
    def pending(self) -> PendingWork:
        """What is begun and not done: dispatched tools without result, open interactions, uncertain outcomes."""
        return self.position.pending

    @classmethod
    def read(
        cls,
        journal: JournalReads,
        *,
        registry: JournalEventCodecRegistry | None = None,
        page: int = 1_000,
        runs_max: int = RUNS_MAX,
    ) -> JournalProjection:
        """Read a whole journal, as far as it is still there.

        Guarantees J4: reading claims, repairs and changes nothing. Unknown types are passed over.

        Args:
            journal: The thread's journal; no claim is needed.
            registry: The event types; None for those of statebook alone.
            page: How many events are read at once, 1 to 10,000.
            runs_max: How many runs and how many steps are kept, the newest ones; at least 1.

        Returns:
            The projection, as of the end when the first page was read.

        Raises:
            ValueError: `page` or `runs_max` is outside its range.
            Trimmed: A trim overtook this call.
            JournalCorrupt: A payload does not validate.
        """
        if runs_max < 1:
            raise ValueError("runs_max must be at least 1")
        head = journal.head()
        after = 0 if head is None else head.first_seq - 1
        registry = registry or JournalEventCodecRegistry()
        return cls(as_of_seq=after, runs_max=runs_max).advanced(journal.read(after, page=page), registry)

    @classmethod
    def read_from_checkpoint(
        cls, journal: JournalReads, *, registry: JournalEventCodecRegistry | None = None, page: int = 1_000
    ) -> JournalProjection:
        """Read the last checkpoint and what follows it. Position and pending work are complete, runs and steps are not.

        Guarantees READ-4 where the checkpoint has a position, as all of this package have; else the whole journal is
        read.

        Args:
            journal: The thread's journal; no claim is needed.
            registry: The event types; None for those of statebook alone.
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The projection.

        Raises:
            ValueError: `page` is outside its range.
            Trimmed: Trims went on overtaking this call.
            JournalCorrupt: A payload does not validate.
        """
        registry = registry or JournalEventCodecRegistry()
        events = journal.read_from_checkpoint(page=page)
        first = next(events, None)
        if first is None:
            return cls()
        begun = cls(as_of_seq=first.seq - 1).advanced((first,), registry)
        if first.seq > 1 and (begun.checkpoint is None or begun.checkpoint.checkpoint.position is None):
            return cls.read(journal, registry=registry, page=page)
        return begun.advanced(events, registry)

    def advanced(self, events: Iterable[RecordedEvent], registry: JournalEventCodecRegistry) -> JournalProjection:
        """The projection behind further events.

        Args:
            events: The events that follow `as_of_seq`, in order.
            registry: The event types.

        Returns:
            The projection behind the last one.

        Raises:
            ValueError: The events do not follow.
            JournalCorrupt: A payload does not validate.
        """
        fold = ProjectionFold(self)
        for event in events:
            fold.feed(event, registry.decode(event))
        return fold.result()


class ProjectionFold:
    """A projection in the making, fed by one event after the other."""

    def __init__(self, begin: JournalProjection) -> None:
        """Begin at a projection, which stays as it is."""
        self.as_of_seq = begin.as_of_seq
        self.position = begin.position
        self.checkpoint = begin.checkpoint
        self._max = begin.runs_max
        self._runs = {run.started_seq: run for run in begin.runs}
        self._steps = {step.started_seq: step for step in begin.steps}

    def feed(self, event: RecordedEvent, payload: BaseModel | None) -> None:
        """Take the next event.

        Args:
            event: The event.
            payload: Its decoded payload, or None.

        Raises:
            ValueError: It does not follow.
        """
        if event.seq != self.as_of_seq + 1:
            raise ValueError(f"event {event.seq} does not follow seq {self.as_of_seq}")
        self.as_of_seq = event.seq
        if event.type in CHECKPOINT_TYPES and isinstance(payload, Checkpoint):
            self.checkpoint = CheckpointView(event.seq, event.event_id, event.type, payload)
            if payload.position is not None:
                self.position = payload.position
            return
        self.position = advance(self.position, event, payload)
        self._views(event, payload)

    def result(self) -> JournalProjection:
        """The projection as it stands."""
        return JournalProjection(
            self.as_of_seq,
            self.position,
            tuple(self._runs.values()),
            tuple(self._steps.values()),
            self.checkpoint,
            self._max,
        )

    def _views(self, event: RecordedEvent, payload: BaseModel | None) -> None:
        match payload:
            case RunStart(continues=continues):
                self._runs[event.seq] = RunView(event.run_id, event.turn_id, continues, event.seq)
                if len(self._runs) > self._max:
                    del self._runs[next(iter(self._runs))]
            case RunEnd(outcome=outcome):
                run = next((run for run in reversed(self._runs.values()) if run.run_id == event.run_id), None)
                if run is not None and run.ended_seq is None:
                    self._runs[run.started_seq] = msgspec.structs.replace(run, ended_seq=event.seq, outcome=outcome)
            case StepStart(step=index):
                self._steps[event.seq] = StepView(event.run_id, index, Phase.REASONING, event.seq)
                if len(self._steps) > self._max:
                    del self._steps[next(iter(self._steps))]
            case StepEnd(step=index, outcome=outcome):
                step = self._step(event.run_id, index)
                if step is not None:
                    self._steps[step.started_seq] = msgspec.structs.replace(step, ended_seq=event.seq, outcome=outcome)
            case StepPhase() | ModelDispatch() | ModelEnd():
                step = self._step(event.run_id, self.position.step)
                if step is not None and self.position.phase is not None:
                    self._steps[step.started_seq] = msgspec.structs.replace(step, phase=self.position.phase)
            case _:
                return

    def _step(self, run_id: str | None, index: int) -> StepView | None:
        newest = reversed(self._steps.values())
        return next((step for step in newest if (step.run_id, step.step) == (run_id, index)), None)
