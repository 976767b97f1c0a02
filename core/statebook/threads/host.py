"""AgentExecutionHost: the boundaries of an agent's execution, which a framework passes one after the other (J20).

The framework reasons, calls models and runs tools; the host makes the journal know before and after each of it. What
could have an effect is durable before it may begin; what was achieved is durable, with the state behind it, before the
next thing begins. A method that returned is a boundary that was passed for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, cast

import msgspec
from pydantic import JsonValue

from statebook.codec import Json
from statebook.errors import InvalidConfiguration, InvalidValue, StatebookError
from statebook.ids import new_id as fresh_id
from statebook.model import Event, RecordedEvent, WriterClaim
from statebook.thread import wall_clock_ms
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry, State
from statebook.threads.events import (
    ActionEnd,
    InputApplied,
    InputReceived,
    InteractionRequested,
    InteractionResolved,
    ModelChunk,
    ModelDispatch,
    ModelEnd,
    RunEnd,
    RunOutput,
    RunStart,
    StepEnd,
    StepPhase,
    StepStart,
    ToolDispatch,
    ToolRequested,
    ToolResult,
)
from statebook.threads.mirror import MirrorPlace, StateMirror
from statebook.threads.payload import EndOutcome, EventPayload, Message, build_event
from statebook.threads.position import AgentExecutionPosition, Phase, ToolState
from statebook.threads.progress import advance
from statebook.threads.recording import EventDraft
from statebook.threads.recovery import NextStep, RecoveredThread


class HostRecorder(Protocol):
    """What a host needs of an `InvocationRecorder`."""

    @property
    def run_id(self) -> str:
        """The execution run."""
        ...

    @property
    def turn_id(self) -> str | None:
        """The turn of the events to come."""
        ...

    def append(self, type: str, payload: Json, *, required: bool = False) -> None:  # noqa: A002 - the contract's word
        """As `InvocationRecorder.append`."""
        ...

    async def record_together(self, *drafts: EventDraft) -> tuple[RecordedEvent, ...]:
        """As `InvocationRecorder.record_together`."""
        ...

    def check(self) -> None:
        """As `InvocationRecorder.check`."""
        ...


class PauseConfirmed(msgspec.Struct, frozen=True):
    """A pause that is durable: the answer, the open interactions and the continuation position are in the journal.

    Attributes:
        as_of_seq: The seq of its checkpoint.
        position: Where the continuation goes on.
    """

    as_of_seq: int
    position: AgentExecutionPosition


class AgentExecutionHost:
    """The boundaries of one run. Used from one event loop; tools of one step may pass theirs side by side.

    Guarantees J20, J12: reasoning, model, acting and finalization begin when the journal says so; results and the state
    behind them commit together. Cancelling a waiter cancels no commit, and the host's state goes with the journal's.
    After a failed commit the recorder lets no further boundary be passed.
    """

    def __init__(
        self,
        recorder: HostRecorder,
        thread: RecoveredThread,
        *,
        registry: JournalEventCodecRegistry | None = None,
        claim: WriterClaim | None = None,
        mirror: StateMirror | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        """Make the host of one run. No I/O.

        Args:
            recorder: The run's recorder. The host is the only one that records what moves state or position.
            thread: The thread, as it was loaded under the claim of the recorder's lane.
            registry: The event types; None for those of statebook alone.
            claim: The claim, where checkpoints are mirrored.
            mirror: Where the main thread's committed checkpoints are mirrored; None for nowhere.
            clock_ms: Unix time in milliseconds.
            new_id: Makes event ids.

        Raises:
            ValueError: A mirror without a claim.
        """
        if mirror is not None and claim is None:
            raise ValueError("a host that mirrors needs the claim")
        self._recorder = recorder
        self._registry = registry or JournalEventCodecRegistry()
        self._registry.seal()
        self._claim = claim
        self._mirror = mirror
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._thread = thread
        self._state: State = thread.state or {}
        self._position = thread.position
        self._next_step = 0
        self._order = asyncio.Lock()
        self._commits: set[asyncio.Task[tuple[RecordedEvent, ...]]] = set()
        self._mirror_error: StatebookError | None = None

    @property
    def state(self) -> State:
        """The state behind everything that was committed."""
        return self._state

    @property
    def position(self) -> AgentExecutionPosition:
        """Where execution stands, behind everything that was committed."""
        return self._position

    @property
    def mirror_error(self) -> StatebookError | None:
        """Why the last mirror failed, or None. The journal is the authority: nothing is lost by it."""
        return self._mirror_error

    # ------------------------------------------------------------------------------------------------- run and input

    async def start(self, run: RunStart, *inputs: InputReceived) -> None:
        """Begin the run: a new call with fresh counters, or a continuation that keeps progress (J13).

        Args:
            run: From `RecoveredThread.new_call` or `RecoveredThread.continuation`.
            *inputs: Inputs that arrive with it; to be applied at a reasoning boundary.

        Raises:
            HeadConflict: A new call, and something is unfinished; or a continuation, and nothing is, or a tool's
                outcome is uncertain.
            InvalidValue: The run continues another one than the thread's.
            StatebookError: As the recorder raises it.
        """
        if run.continues is None:
            self._thread.new_call()
        elif run.continues != self._thread.position.run_id:
            raise InvalidValue(f"run {run.continues!r} is not the one to be continued")
        elif self._thread.next_step in (NextStep.RECONCILE, NextStep.NEW_CALL):
            self._thread.continuation()
        before = (self._thread.restored(),) if self._thread.as_of_seq else ()
        await self._commit((*before, run, *inputs))

    async def receive(self, *inputs: InputReceived) -> None:
        """Take inputs that arrive while the run goes on; they are applied at a reasoning boundary.

        Args:
            *inputs: The inputs.

        Raises:
            StatebookError: As the recorder raises it.
        """
        await self._commit(inputs)

    # ---------------------------------------------------------------------------------------------------- boundaries

    async def reasoning(self) -> int:
        """Pass the boundary of reasoning: end the last step, begin the next one, apply the inputs that wait.

        Returns:
            The step's index.

        Raises:
            StatebookError: As the recorder raises it.
        """
        step = self._next_step
        ended = (StepEnd(step=step - 1),) if step else ()
        inputs = tuple(
            InputApplied(input_id=given.input_id, message=given.message) for given in self._position.pending.inputs
        )
        await self._commit((*ended, StepStart(step=step), *inputs), checkpoint=bool(inputs))
        return step

    async def model(self, dispatch: ModelDispatch) -> None:
        """Pass the boundary of the model: durable before the call is made.

        Args:
            dispatch: The model call.

        Raises:
            StatebookError: As the recorder raises it.
        """
        await self._commit((self._enters(Phase.MODEL), dispatch))

    def chunk(self, part: ModelChunk | RunOutput) -> None:
        """Note a part of an answer, without waiting for its commit.

        Args:
            part: The part.

        Raises:
            StatebookError: As `InvocationRecorder.append`.
        """
        self._recorder.append(part.event_type, part.to_json(), required=part.event_required)

    async def model_ended(self, end: ModelEnd, *requested: ToolRequested) -> None:
        """Commit a model's result, the tool calls that it asks for and the state behind them. Consumes an iteration.

        Args:
            end: The result; only a completed one changes the state and counts.
            *requested: The tool calls.

        Raises:
            StatebookError: As the recorder raises it.
        """
        await self._commit((end, *requested), checkpoint=True)

    async def acting(self, *dispatched: ToolDispatch) -> None:
        """Pass the boundary of acting: durable before any effect of these tools.

        Guarantees J15: a tool that has begun is never begun again, also not in another process after a crash.

        Args:
            *dispatched: The tool calls that begin now.

        Raises:
            InvalidValue: One was not requested, has begun already, or stands here twice. Nothing was recorded.
            StatebookError: As the recorder raises it.
        """
        if len({dispatch.call_id for dispatch in dispatched}) != len(dispatched) or not dispatched:
            raise InvalidValue("name at least one tool call, and each once")

        def unbegun(position: AgentExecutionPosition) -> None:
            for dispatch in dispatched:
                tool = position.pending.tool(dispatch.call_id)
                if tool is None or tool.state is not ToolState.REQUESTED:
                    found = "not requested" if tool is None else tool.state.value
                    raise InvalidValue(f"tool call {dispatch.call_id!r} cannot begin: it is {found}")

        enters = () if self._position.phase is Phase.ACTING else (self._enters(Phase.ACTING),)
        await self._commit((*enters, *dispatched), guard=unbegun)

    async def action_ended(self, end: ActionEnd, result: ToolResult | None = None) -> None:
        """Commit what a tool did, with its result and the state behind it.

        Args:
            end: How it ended; `unknown` where the executor cannot tell.
            result: The result, where it becomes a part of the state at once; None to apply it later.

        Raises:
            InvalidValue: The call has not begun or has ended, or the result is another call's or given though the
                outcome is unknown. Nothing was recorded.
            StatebookError: As the recorder raises it.
        """
        if result is not None and (result.call_id != end.call_id or end.outcome == "unknown"):
            raise InvalidValue(f"tool call {end.call_id!r} has no such result; an unknown outcome is reconciled")

        def begun(position: AgentExecutionPosition) -> None:
            tool = position.pending.tool(end.call_id)
            if tool is None or tool.state is not ToolState.DISPATCHED:
                raise InvalidValue(f"tool call {end.call_id!r} cannot end: it has not begun, or has ended")

        await self._commit((end,) if result is None else (end, result), checkpoint=True, guard=begun)

    async def apply_result(self, result: ToolResult) -> None:
        """Apply a result that is there already: saved before a crash, or given from outside. Consumes no iteration.

        Guarantees J19.

        Args:
            result: The result.

        Raises:
            InvalidValue: The call is not pending, or its outcome is uncertain and must be reconciled.
            StatebookError: As the recorder raises it.
        """

        def certain(position: AgentExecutionPosition) -> None:
            tool = position.pending.tool(result.call_id)
            if tool is None or tool in position.pending.uncertain:
                raise InvalidValue(f"tool call {result.call_id!r} is not pending, or uncertain and to be reconciled")

        await self._commit((result,), checkpoint=True, guard=certain)

    async def answer(self, *answers: InteractionResolved) -> None:
        """Record the answers of open interactions.

        Args:
            *answers: The answers.

        Raises:
            InvalidValue: An interaction is not open, or none is named. Nothing was recorded.
            StatebookError: As the recorder raises it.
        """

        def are_open(position: AgentExecutionPosition) -> None:
            asked = {asked.interaction_id for asked in position.pending.interactions}
            if not answers or not asked.issuperset(answer.interaction_id for answer in answers):
                raise InvalidValue("name at least one interaction, and only open ones")

        await self._commit(answers, checkpoint=True, guard=are_open)

    async def pause(
        self,
        *asked: InteractionRequested,
        answer: JsonValue = None,
        outcome: Literal["paused", "interrupted"] = "paused",
    ) -> PauseConfirmed:
        """End the run before its work is done. Returns when the pause is durable, and never before.

        Guarantees J20: the answer so far, the open interactions and the continuation position are in one batch.

        Args:
            *asked: What somebody has to answer before the continuation; may be none.
            answer: The answer so far, or None.
            outcome: `paused` on purpose, or `interrupted` from outside.

        Returns:
            The confirmation.

        Raises:
            StatebookError: As the recorder raises it; the pause is not confirmed.
        """
        output = () if answer is None else (RunOutput(output=answer, final=False),)
        recorded = await self._commit((*asked, *output, RunEnd(outcome=outcome)), checkpoint=True)
        return PauseConfirmed(recorded[-1].seq, self._position)

    async def finalization(
        self, output: JsonValue = None, *, outcome: EndOutcome = "completed", error: str | None = None
    ) -> int:
        """End the run for good: answer, ends and checkpoint in one batch.

        Args:
            output: The answer, or None.
            outcome: How it ended.
            error: What went wrong, as text without payloads.

        Returns:
            The seq of its checkpoint.

        Raises:
            InvalidValue: It is to be completed and tool calls or interactions are pending. Nothing was recorded.
            StatebookError: As the recorder raises it.
        """

        def complete(position: AgentExecutionPosition) -> None:
            if outcome == "completed" and (position.pending.tools or position.pending.interactions):
                raise InvalidValue(f"the run is not complete: {position.describe()}")

        answer = () if output is None else (RunOutput(output=output),)
        step = self._next_step - 1
        begun = () if step < 0 else (self._enters(Phase.FINALIZATION),)
        ended = () if step < 0 else (StepEnd(step=step, outcome=outcome),)
        payloads = (*begun, *answer, *ended, RunEnd(outcome=outcome, error=error))
        return (await self._commit(payloads, checkpoint=True, guard=complete))[-1].seq

    async def record(self, *payloads: EventPayload, change: Callable[[State], State] | None = None) -> int:
        """Commit further events, such as an extension's, and the state behind them.

        Args:
            *payloads: Their payloads; their types are registered. May be none.
            change: Changes the state behind them, as a compaction of messages does. A pure function.

        Returns:
            The seq of the checkpoint.

        Raises:
            InvalidConfiguration: A type is not registered. Nothing was recorded.
            StatebookError: As the recorder raises it.
        """
        return (await self._commit(payloads, checkpoint=True, change=change))[-1].seq

    # ------------------------------------------------------------------------------------------------------ internal

    def _enters(self, phase: Phase) -> StepPhase:
        return StepPhase(step=self._position.step, phase=phase)

    async def _commit(
        self,
        payloads: Sequence[EventPayload],
        *,
        checkpoint: bool = False,
        change: Callable[[State], State] | None = None,
        guard: Callable[[AgentExecutionPosition], None] | None = None,
    ) -> tuple[RecordedEvent, ...]:
        """Commit to the end, also where the caller is cancelled meanwhile, so that state and journal stay together."""
        self._recorder.check()
        task = asyncio.ensure_future(self._commit_in_order(payloads, checkpoint, change, guard))
        self._commits.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[tuple[RecordedEvent, ...]]) -> None:
        self._commits.discard(task)
        if not task.cancelled():
            task.exception()  # looked at here too, for a caller that was cancelled; the recorder stays stopped

    async def _commit_in_order(
        self,
        payloads: Sequence[EventPayload],
        checkpoint: bool,  # noqa: FBT001
        change: Callable[[State], State] | None,
        guard: Callable[[AgentExecutionPosition], None] | None,
    ) -> tuple[RecordedEvent, ...]:
        async with self._order:
            if guard is not None:  # here, where nobody else can be faster
                guard(self._position)
            drafts, state, position = self._planned(payloads)
            if change is not None:
                state = change(state)
            if checkpoint:
                saved = Checkpoint(state=cast("Message", dict(state)), position=position)
                drafts.append(EventDraft(saved.event_type, saved.to_json(), required=True))
            recorded = await self._recorder.record_together(*drafts)
            self._state, self._position = state, position
            for payload in payloads:
                if isinstance(payload, StepStart):
                    self._next_step = payload.step + 1
        if checkpoint:
            await self._mirror_checkpoint(state, recorded[-1])
        return recorded

    def _planned(self, payloads: Sequence[EventPayload]) -> tuple[list[EventDraft], State, AgentExecutionPosition]:
        """The drafts, and state and position behind them."""
        state, position = self._state, self._position
        drafts: list[EventDraft] = []
        for payload in payloads:
            if self._registry.codec(payload.event_type) is None:
                raise InvalidConfiguration(
                    f"event type {payload.event_type!r} is not registered", option=payload.event_type
                )
            event = self._event(payload)
            state = self._registry.apply(state, event, payload)
            position = advance(position, event, payload)
            drafts.append(EventDraft(event.type, payload.to_json(), required=event.required, event_id=event.event_id))
        return drafts, state, position

    def _event(self, payload: EventPayload) -> Event:
        return build_event(
            payload,
            event_id=self._new_id(),
            occurred_at=self._clock_ms(),
            run_id=self._recorder.run_id,
            turn_id=self._recorder.turn_id,
        )

    async def _mirror_checkpoint(self, state: State, event: RecordedEvent) -> None:
        if self._mirror is None or self._claim is None:
            return
        place = MirrorPlace(self._claim.journal_id, self._claim.epoch, event.seq)
        try:
            await asyncio.to_thread(self._mirror.write, self._claim.key, state, place)
        except StatebookError as error:
            self._mirror_error = error
        else:
            self._mirror_error = None
