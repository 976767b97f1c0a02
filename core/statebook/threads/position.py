"""AgentExecutionPosition: where an agent's execution stands, so that another process goes on from exactly there.

It is saved inside each checkpoint. The accumulated reasoning progress (`iterations`) is kept apart from the run's step
index (`step`): a continuation begins at step 0 of a new run and keeps its iterations, and applying a tool result that
is there already moves the step and consumes no iteration (J19).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Count: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
"""An integer of at least 0; nothing is converted to it."""


class Phase(StrEnum):
    """The phases of a step; each begins at a boundary of the host (J20)."""

    REASONING = "reasoning"
    MODEL = "model"
    ACTING = "acting"
    FINALIZATION = "finalization"


class ExecutionStatus(StrEnum):
    """Whether a run is there to go on with.

    `IDLE`: none; the next call starts afresh. `RUNNING`: a run has started and not ended. `PAUSED`: it ended on purpose
    before its work was done, and is to be continued.
    """

    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"


class ToolState(StrEnum):
    """How far a requested tool call has come.

    `REQUESTED`: not begun, certainly without effect. `DISPATCHED`: begun; whether its effect happened is not known
    until it ends. `UNCERTAIN`: its executor says that it does not know. `ENDED`: its result is there and not applied.
    """

    REQUESTED = "requested"
    DISPATCHED = "dispatched"
    UNCERTAIN = "uncertain"
    ENDED = "ended"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PendingTool(_Frozen):
    """A tool call without an applied result.

    Attributes:
        call_id: The tool call.
        name: The tool; empty where the call was never requested by a `tool/requested` event.
        arguments: Its arguments.
        state: How far it has come.
        outcome: How it ended, where `state` is `ENDED`.
        result: What it gave, where `state` is `ENDED`.
        run_id: The run that asked for it.
        turn_id: The turn.
        step: The step of that run.
        event_id: The event that moved it to this state: its provenance.
    """

    call_id: str
    name: str = ""
    arguments: JsonValue = None
    state: ToolState
    outcome: str | None = None
    result: JsonValue = None
    run_id: str | None = None
    turn_id: str | None = None
    step: Count = 0
    event_id: str


class PendingInteraction(_Frozen):
    """A question to a person or another system that nobody has answered.

    Attributes:
        interaction_id: The interaction.
        kind: What it asks for, such as `approval`.
        call_id: The tool call that it is about, or None.
        prompt: What is asked.
        run_id: The run that asked.
        turn_id: The turn.
        step: The step of that run.
        event_id: The event that asked.
    """

    interaction_id: str
    kind: str
    call_id: str | None = None
    prompt: JsonValue = None
    run_id: str | None = None
    turn_id: str | None = None
    step: Count = 0
    event_id: str


class PendingInput(_Frozen):
    """An input that was received and not applied to the state.

    Attributes:
        input_id: The input.
        message: The message.
        event_id: The event that received it.
    """

    input_id: str
    message: dict[str, JsonValue]
    event_id: str


class PendingWork(_Frozen):
    """Everything that is begun and not done.

    Attributes:
        model_call_id: A model call that was dispatched and has no end, or None. Its result was never used, so it may
            be made again.
        tools: Tool calls without an applied result, in the order in which they were asked for.
        interactions: Interactions without an answer, in order.
        inputs: Inputs that were not applied, in order.
    """

    model_call_id: str | None = None
    tools: tuple[PendingTool, ...] = ()
    interactions: tuple[PendingInteraction, ...] = ()
    inputs: tuple[PendingInput, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.model_call_id is not None or self.tools or self.interactions or self.inputs)

    @property
    def dispatched(self) -> tuple[PendingTool, ...]:
        """Tools that were begun and have not ended: running, or of unknown outcome where their process is gone."""
        return tuple(tool for tool in self.tools if tool.state is ToolState.DISPATCHED)

    @property
    def uncertain(self) -> tuple[PendingTool, ...]:
        """Tools whose outcome cannot be told without their executor: begun and not ended, or ended as unknown."""
        return tuple(tool for tool in self.tools if tool.state in (ToolState.DISPATCHED, ToolState.UNCERTAIN))

    def tool(self, call_id: str) -> PendingTool | None:
        """The pending tool call of an id, or None."""
        return next((tool for tool in self.tools if tool.call_id == call_id), None)


class AgentExecutionPosition(_Frozen):
    """Where execution stands: the member `position` of a checkpoint's payload (J19).

    Attributes:
        status: Whether a run is there to go on with.
        run_id: The current or last run, or None where there was none.
        origin_run_id: The run that the accumulated progress began in: another one where `run_id` continues it.
        turn_id: The turn.
        step: The step index of `run_id`, from 0.
        phase: The phase of that step, or None where no run is there to go on with.
        iterations: Reasoning iterations since `origin_run_id` began: model calls whose result was used. Over
            continuations it goes on, and nothing but a finished model call consumes one.
        pending: What is begun and not done.
    """

    status: ExecutionStatus = ExecutionStatus.IDLE
    run_id: str | None = None
    origin_run_id: str | None = None
    turn_id: str | None = None
    step: Count = 0
    phase: Phase | None = None
    iterations: Count = 0
    pending: PendingWork = PendingWork()

    @property
    def unfinished(self) -> bool:
        """Whether a run is there to go on with, or work is pending."""
        return self.status is not ExecutionStatus.IDLE or bool(self.pending)

    def describe(self) -> str:
        """What is unfinished, in a few words and without payloads."""
        parts = [] if self.status is ExecutionStatus.IDLE else [f"run {self.run_id!r} is {self.status.value}"]
        pending = self.pending
        if pending.model_call_id is not None:
            parts.append(f"model call {pending.model_call_id!r} has no end")
        parts.extend(f"tool call {tool.call_id!r} is {tool.state.value}" for tool in pending.tools[:3])
        parts.extend(f"interaction {asked.interaction_id!r} is open" for asked in pending.interactions[:3])
        parts.extend(f"input {given.input_id!r} is not applied" for given in pending.inputs[:3])
        return "; ".join(parts) or "nothing is unfinished"
