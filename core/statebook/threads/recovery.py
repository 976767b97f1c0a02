"""ThreadRecovery: from the journal back to a state and a place to go on from. Nothing runs by itself (J13, J15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import cast

import msgspec
from pydantic import BaseModel, JsonValue

from statebook.codec import Json
from statebook.errors import (
    HeadConflict,
    InvalidValue,
    JournalCorrupt,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
    WriterFenced,
)
from statebook.ids import new_id as fresh_id
from statebook.keys import ThreadKey
from statebook.model import CHECKPOINT_TYPES, Event, Receipt, RecordedEvent
from statebook.thread import ThreadJournal, wall_clock_ms
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry, State
from statebook.threads.events import RecoveryApplied, RunStart, StateRestored, ToolResult
from statebook.threads.history import JournalReads
from statebook.threads.payload import EventPayload, Message, ResultOutcome, build_event
from statebook.threads.position import AgentExecutionPosition, PendingTool, PendingWork, Phase
from statebook.threads.progress import advance
from statebook.threads.projection import JournalProjection, ProjectionFold


class NextStep(Enum):
    """What may happen with a recovered thread. Its owner decides; nothing happens by itself.

    `NEW_CALL`: nothing is unfinished. `CONTINUE`: a run is to be continued from the saved phase, input and results.
    `ANSWER`: interactions are open; continue with the answers. `RECONCILE`: a tool was begun and its outcome is not
    known; find out and reconcile first.
    """

    NEW_CALL = "new_call"
    CONTINUE = "continue"
    ANSWER = "answer"
    RECONCILE = "reconcile"


class RecoveredThread(msgspec.Struct, frozen=True):
    """A thread as its journal says it is.

    Attributes:
        key: The thread.
        journal_id: The incarnation that was read.
        state: The state: the last checkpoint with what follows it applied; None where there is no state yet.
        checkpoint_seq: The checkpoint, or None.
        as_of_seq: Everything up to this seq is in it.
        position: Where execution stands.
    """

    key: ThreadKey
    journal_id: str
    state: State | None
    checkpoint_seq: int | None
    as_of_seq: int
    position: AgentExecutionPosition

    @property
    def phase(self) -> Phase | None:
        """The phase to go on in, or None where there is no run to go on with."""
        return self.position.phase

    @property
    def pending(self) -> PendingWork:
        """What is begun and not done."""
        return self.position.pending

    @property
    def uncertain(self) -> tuple[PendingTool, ...]:
        """Tools whose effect may have happened or not: begun, and their process is gone."""
        return self.position.pending.uncertain

    @property
    def next_step(self) -> NextStep:
        """What may happen next."""
        if self.uncertain:
            return NextStep.RECONCILE
        if self.pending.interactions:
            return NextStep.ANSWER
        return NextStep.CONTINUE if self.position.unfinished else NextStep.NEW_CALL

    def new_call(self, *, input: JsonValue = None) -> RunStart:  # noqa: A002 - the event's word
        """The beginning of a call after completion: it keeps the context and starts with fresh counters.

        Args:
            input: What is asked.

        Returns:
            The payload of the new run's `run/start`.

        Raises:
            HeadConflict: Something is unfinished.
        """
        if self.next_step is not NextStep.NEW_CALL:
            raise self._refusal("a new call cannot begin", "continue, answer or reconcile it first")
        return RunStart(input=input)

    def continuation(self, *, input: JsonValue = None, answering: Sequence[str] = ()) -> RunStart:  # noqa: A002
        """The beginning of a run that goes on with the unfinished one: it keeps progress and provenance.

        Args:
            input: What is asked or answered.
            answering: The ids of the open interactions that the run will resolve.

        Returns:
            The payload of the new run's `run/start`.

        Raises:
            HeadConflict: Nothing is to be continued, a tool's outcome is uncertain, or no open interaction is answered.
            InvalidValue: An interaction is not open.
        """
        if self.next_step is NextStep.RECONCILE:
            raise self._refusal("the run cannot be continued", "find out what the tools did, and reconcile")
        run_id = self.position.run_id
        if self.next_step is NextStep.NEW_CALL or run_id is None:
            raise self._refusal("there is no run to continue", "begin a new call")
        wanted = set(answering)
        unknown = wanted - {asked.interaction_id for asked in self.pending.interactions}
        if unknown:
            raise InvalidValue(f"interaction {min(unknown)!r} is not open in this thread", key=self.key.name)
        if self.pending.interactions and not wanted:
            raise self._refusal("the run waits for answers", "answer at least one interaction")
        return RunStart(input=input, continues=run_id)

    def restored(self) -> StateRestored:
        """What a writer records when it goes on from here: the payload of `state/restored`."""
        return StateRestored(checkpoint_seq=self.checkpoint_seq, as_of_seq=self.as_of_seq, phase=self.phase)

    def _refusal(self, what: str, remedy: str) -> HeadConflict:
        return HeadConflict(f"{what}: {self.position.describe()}; {remedy}", last_seq=self.as_of_seq, key=self.key.name)


class ToolOutcome(msgspec.Struct, frozen=True):
    """What was found out about an uncertain tool call.

    Attributes:
        call_id: The tool call.
        outcome: What happened. `unknown` where nobody will ever know; the model is told so.
        content: The result for the model.
        message: The complete message, or None for one that is made of `content`.
    """

    call_id: str
    outcome: ResultOutcome
    content: JsonValue = None
    message: Message | None = None


class Reconciled(msgspec.Struct, frozen=True):
    """What a reconciliation committed.

    Attributes:
        receipt: Of the one batch: results, `recovery/applied` and checkpoint.
        thread: The thread behind it.
    """

    receipt: Receipt
    thread: RecoveredThread


class ReconcilePlan(msgspec.Struct, frozen=True):
    """The one batch of a reconciliation, not committed yet.

    Attributes:
        events: The results, `recovery/applied`, and the checkpoint at the end.
        state: The state behind them.
        position: The position behind them.
    """

    events: tuple[Event, ...]
    state: State
    position: AgentExecutionPosition


class ThreadRecovery:
    """Loads threads and settles what is uncertain. Holds nothing but the event types."""

    def __init__(
        self,
        registry: JournalEventCodecRegistry | None = None,
        *,
        validate: Callable[[State], object] | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        """Make a recovery service.

        Args:
            registry: The event types; None for those of statebook alone. Takes no registrations afterwards.
            validate: Checks a checkpoint's state, such as `AgentState.from_mapping`; raises a `StatebookError`.
            clock_ms: Unix time in milliseconds, for events.
            new_id: Makes event ids and batch ids.
        """
        self._registry = registry or JournalEventCodecRegistry()
        self._validate = validate
        self._clock_ms = clock_ms
        self._new_id = new_id

    def load(
        self, journal: JournalReads, *, initial: Mapping[str, Json] | None = None, page: int = 1_000
    ) -> RecoveredThread:
        """Read the last checkpoint, apply what follows it, and say where execution stands.

        Guarantees J4, J13: reads alone. Nothing is claimed, repaired, dispatched or called. READ-4: costs what follows
        the checkpoint. J18: an unknown required type blocks it.

        Args:
            journal: The thread's journal. A writer claims it first, and loads then: nobody else can write meanwhile.
            initial: The state to begin with where the journal has no checkpoint; None for none.
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The thread.

        Raises:
            JournalNotFound: There is no journal.
            UnsupportedFormat: An event of an unknown type is required, or the state is of a newer schema.
            JournalCorrupt: A payload or the checkpoint does not validate.
            StateCorrupt: The state in the checkpoint does not validate.
            Trimmed: There is no checkpoint, and the first events have been trimmed away; or trims overtook this call.
        """
        self._registry.seal()
        head = journal.head()
        if head is None:
            raise JournalNotFound("there is no journal to recover", key=journal.key.name)
        if head.checkpoint_seq is None and head.first_seq > 1:
            raise Trimmed(
                "the journal has no checkpoint, and its first events are trimmed away",
                first_seq=head.first_seq,
                key=journal.key.name,
            )
        state, fold, placed = self._restore(journal, initial, page)
        position = fold.position
        if not placed:
            position = self._position(journal, fold.as_of_seq, page)
        again = journal.head()
        if again is None or again.journal_id != head.journal_id or fold.as_of_seq < head.last_seq:
            raise JournalRegressed(
                "the journal was deleted or became shorter while it was read",
                last_seq=fold.as_of_seq,
                seen_seq=head.last_seq,
                key=journal.key.name,
            )
        checkpoint_seq = None if fold.checkpoint is None else fold.checkpoint.seq
        return RecoveredThread(journal.key, head.journal_id, state, checkpoint_seq, fold.as_of_seq, position)

    def checkpoint(self, event: RecordedEvent) -> Checkpoint:
        """Read a checkpoint event, validated. No I/O.

        Args:
            event: An event of type `state/checkpoint` or `state/initialized`.

        Returns:
            The checkpoint.

        Raises:
            JournalCorrupt: It does not validate, or is no checkpoint.
            StateCorrupt: Its state does not validate.
        """
        payload = self._registry.require(event)
        if not isinstance(payload, Checkpoint):
            raise JournalCorrupt(f"event {event.seq} is no checkpoint", what="checkpoint", found=event.type)
        self._checked(event, payload)
        return payload

    def _restore(
        self, journal: JournalReads, initial: State | None, page: int
    ) -> tuple[State | None, ProjectionFold, bool]:
        """State and projection from the last checkpoint on, and whether the position in it is complete."""
        state: State | None = None if initial is None else {**initial}
        fold = ProjectionFold(JournalProjection())
        placed = True
        for event in journal.read_from_checkpoint(page=page):
            if fold.as_of_seq == 0:
                fold = ProjectionFold(JournalProjection(as_of_seq=event.seq - 1))
                placed = event.seq == 1
            payload = self._registry.require(event)
            if event.type in CHECKPOINT_TYPES and isinstance(payload, Checkpoint):
                state = self._checked(event, payload)
                placed = placed or payload.position is not None
            else:
                state = self._applied(state, event, payload)
            fold.feed(event, payload)
        return state, fold, placed

    def _checked(self, event: RecordedEvent, payload: Checkpoint) -> State:
        state = cast("State", payload.state)
        if self._validate is not None:
            try:
                self._validate(state)
            except ValueError as error:
                raise JournalCorrupt(
                    f"the state of the checkpoint at seq {event.seq} is not valid; nothing was changed",
                    what="checkpoint",
                ) from error
        return state

    def _applied(self, state: State | None, event: Event | RecordedEvent, payload: BaseModel | None) -> State | None:
        before: State = {} if state is None else state
        behind = self._registry.apply(before, event, payload)
        return state if behind is before else behind

    def _position(self, journal: JournalReads, as_of_seq: int, page: int) -> AgentExecutionPosition:
        """The position by the whole journal, where its last checkpoint was written without one."""
        head = journal.head()
        fold = ProjectionFold(JournalProjection(as_of_seq=0 if head is None else head.first_seq - 1))
        for event in journal.read(fold.as_of_seq, page=page):
            if event.seq > as_of_seq:
                break
            fold.feed(event, self._registry.decode(event))
        return fold.position

    def plan_reconcile(self, thread: RecoveredThread, outcomes: Sequence[ToolOutcome], reason: str) -> ReconcilePlan:
        """Decide a reconciliation, without committing it. No I/O.

        Args:
            thread: The thread, as it was loaded under the claim that will commit.
            outcomes: What was found out, each for one uncertain tool call. Others stay uncertain.
            reason: Who found out, and how.

        Returns:
            The events of the one batch.

        Raises:
            InvalidValue: There is no outcome or no reason, or an outcome is for a tool call that is not uncertain or
                has another one already. Nothing was changed.
        """
        self._check_outcomes(thread, outcomes, reason)
        state, position = thread.state, thread.position
        events: list[Event] = []
        payloads: list[tuple[EventPayload, str | None, str | None]] = []
        for found in outcomes:
            tool = thread.pending.tool(found.call_id)
            if tool is not None:
                payloads.append((_result(tool, found, reason), tool.run_id, tool.turn_id))
        call_ids = tuple(found.call_id for found in outcomes)
        applied = RecoveryApplied(reason=reason, call_ids=call_ids, as_of_seq=thread.as_of_seq)
        for payload, run_id, turn_id in (*payloads, (applied, position.run_id, position.turn_id)):
            event = self._event(payload, run_id, turn_id)
            state, position = self._applied(state, event, payload), advance(position, event, payload)
            events.append(event)
        settled: State = {} if state is None else state
        checkpoint = Checkpoint(state=cast("Message", dict(settled)), position=position)
        if self._validate is not None:
            self._validate(settled)
        events.append(self._event(checkpoint, position.run_id, position.turn_id))
        return ReconcilePlan(tuple(events), settled, position)

    def reconcile(self, journal: ThreadJournal, outcomes: Sequence[ToolOutcome], reason: str) -> Reconciled:
        """Commit what was found out about uncertain tool calls: results, `recovery/applied` and checkpoint, one batch.

        Guarantees J15, APPEND-2: all of it or none. No tool is run, and nothing is run again to find out. The results
        keep the original run, turn, step and event as their provenance.

        Args:
            journal: A handle that has claimed the thread.
            outcomes: What was found out, each for one uncertain tool call. Others stay uncertain.
            reason: Who found out, and how.

        Returns:
            The receipt, and the thread behind it.

        Raises:
            InvalidValue: As `plan_reconcile`; nothing was changed.
            WriterFenced: The handle has no claim, or a newer one exists; nothing was changed.
            HeadConflict: The journal has moved past the handle; nothing was changed.
            StatebookError: As `load` and `ThreadJournal.append_batch`.
        """
        if journal.held is None:
            raise WriterFenced("reconciling needs a claim; call claim(writer_id) first", key=journal.key.name)
        thread = self.load(journal)
        if thread.as_of_seq != journal.last_seq:
            raise HeadConflict(
                "the journal has moved past this handle; claim again and load again",
                last_seq=thread.as_of_seq,
                base_seq=journal.last_seq,
                key=journal.key.name,
            )
        plan = self.plan_reconcile(thread, outcomes, reason)
        receipt = journal.append(*plan.events, batch_id=self._new_id())
        last = receipt.last_seq
        behind = RecoveredThread(thread.key, receipt.journal_id, plan.state, last, last, plan.position)
        return Reconciled(receipt, behind)

    def _check_outcomes(self, thread: RecoveredThread, outcomes: Sequence[ToolOutcome], reason: str) -> None:
        key = thread.key.name
        if not outcomes or not reason:
            raise InvalidValue("a reconciliation needs at least one outcome, and a reason", key=key)
        uncertain = {tool.call_id for tool in thread.uncertain}
        for found in outcomes:
            if found.call_id not in uncertain:
                raise InvalidValue(
                    f"tool call {found.call_id!r} is not uncertain in this thread, or has an outcome twice", key=key
                )
            uncertain.remove(found.call_id)

    def _event(self, payload: EventPayload, run_id: str | None, turn_id: str | None) -> Event:
        return build_event(
            payload, event_id=self._new_id(), occurred_at=self._clock_ms(), run_id=run_id, turn_id=turn_id
        )


def _result(tool: PendingTool, found: ToolOutcome, reason: str) -> ToolResult:
    return ToolResult(
        call_id=tool.call_id,
        outcome=found.outcome,
        content=found.content,
        message=found.message,
        source="reconciled",
        step=tool.step,
        provenance={
            "run_id": tool.run_id,
            "turn_id": tool.turn_id,
            "step": tool.step,
            "event_id": tool.event_id,
            "state": tool.state.value,
            "reason": reason,
        },
    )
