"""How each event moves the execution position. A pure function: the same events give the same position (J6, J19)."""

from __future__ import annotations

from pydantic import BaseModel

from statebook.model import Event, RecordedEvent
from statebook.threads.events import (
    ActionEnd,
    InputApplied,
    InputReceived,
    InteractionRequested,
    InteractionResolved,
    ModelDispatch,
    ModelEnd,
    RunEnd,
    RunStart,
    StepPhase,
    StepStart,
    ToolDispatch,
    ToolRequested,
    ToolResult,
)
from statebook.threads.position import (
    AgentExecutionPosition,
    ExecutionStatus,
    PendingInput,
    PendingInteraction,
    PendingTool,
    PendingWork,
    Phase,
    ToolState,
)


def advance(
    position: AgentExecutionPosition, event: Event | RecordedEvent, payload: BaseModel | None
) -> AgentExecutionPosition:
    """The position behind an event.

    Guarantees J19: only a completed model call consumes an iteration; a continuation keeps the iterations and starts at
    step 0; a new call starts with fresh counters.

    Args:
        position: The position before it.
        event: The event; its ids are kept as provenance.
        payload: Its decoded payload; None, and types without a part in execution, move nothing.

    Returns:
        The position behind it.
    """
    match payload:
        case RunStart() | RunEnd():
            return _run(position, event, payload)
        case StepStart(step=step):
            return position.model_copy(update={"step": step, "phase": Phase.REASONING})
        case StepPhase(step=step, phase=phase):
            return position.model_copy(update={"step": step, "phase": phase})
        case ModelDispatch() | ModelEnd():
            return _model(position, payload)
        case ToolRequested() | ToolDispatch() | ActionEnd() | ToolResult():
            return _pending(position, tools=_tools(position, event, payload))
        case InteractionRequested() | InteractionResolved():
            return _pending(position, interactions=_interactions(position, event, payload))
        case InputReceived() | InputApplied():
            return _pending(position, inputs=_inputs(position, event, payload))
        case _:
            return position


def _run(
    position: AgentExecutionPosition, event: Event | RecordedEvent, payload: RunStart | RunEnd
) -> AgentExecutionPosition:
    pending = position.pending.model_copy(update={"model_call_id": None})
    if isinstance(payload, RunStart):
        continues = payload.continues
        return AgentExecutionPosition(
            status=ExecutionStatus.RUNNING,
            run_id=event.run_id,
            origin_run_id=event.run_id if continues is None else position.origin_run_id or continues,
            turn_id=event.turn_id,
            phase=Phase.REASONING if continues is None else position.phase or Phase.REASONING,
            iterations=0 if continues is None else position.iterations,
            pending=pending,
        )
    if payload.outcome in ("paused", "interrupted"):
        return position.model_copy(update={"status": ExecutionStatus.PAUSED, "pending": pending})
    return position.model_copy(update={"status": ExecutionStatus.IDLE, "phase": None, "pending": pending})


def _model(position: AgentExecutionPosition, payload: ModelDispatch | ModelEnd) -> AgentExecutionPosition:
    if isinstance(payload, ModelDispatch):
        pending = position.pending.model_copy(update={"model_call_id": payload.call_id})
        return position.model_copy(update={"phase": Phase.MODEL, "pending": pending})
    pending = position.pending.model_copy(update={"model_call_id": None})
    if payload.outcome != "completed":
        return position.model_copy(update={"pending": pending})
    return position.model_copy(
        update={"phase": Phase.ACTING, "iterations": position.iterations + 1, "pending": pending}
    )


def _pending(
    position: AgentExecutionPosition,
    *,
    tools: tuple[PendingTool, ...] | None = None,
    interactions: tuple[PendingInteraction, ...] | None = None,
    inputs: tuple[PendingInput, ...] | None = None,
) -> AgentExecutionPosition:
    pending = position.pending
    return position.model_copy(
        update={
            "pending": PendingWork.model_construct(
                model_call_id=pending.model_call_id,
                tools=pending.tools if tools is None else tools,
                interactions=pending.interactions if interactions is None else interactions,
                inputs=pending.inputs if inputs is None else inputs,
            )
        }
    )


def _tools(
    position: AgentExecutionPosition,
    event: Event | RecordedEvent,
    payload: ToolRequested | ToolDispatch | ActionEnd | ToolResult,
) -> tuple[PendingTool, ...]:
    tools = position.pending.tools
    if isinstance(payload, ToolResult):
        return tuple(tool for tool in tools if tool.call_id != payload.call_id)
    tool = position.pending.tool(payload.call_id) or PendingTool(
        call_id=payload.call_id,
        state=ToolState.REQUESTED,
        run_id=event.run_id,
        turn_id=event.turn_id,
        step=position.step,
        event_id=event.event_id,
    )
    changed: dict[str, object] = {"event_id": event.event_id}
    if isinstance(payload, ToolRequested):
        changed |= {"name": payload.name, "arguments": payload.arguments}
    elif isinstance(payload, ToolDispatch):
        changed |= {"state": ToolState.DISPATCHED, "name": payload.name or tool.name}
    elif payload.outcome == "unknown":
        changed |= {"state": ToolState.UNCERTAIN}
    else:
        changed |= {"state": ToolState.ENDED, "outcome": payload.outcome, "result": payload.result}
    moved = tool.model_copy(update=changed)
    if position.pending.tool(payload.call_id) is None:
        return (*tools, moved)
    return tuple(moved if other.call_id == payload.call_id else other for other in tools)


def _interactions(
    position: AgentExecutionPosition,
    event: Event | RecordedEvent,
    payload: InteractionRequested | InteractionResolved,
) -> tuple[PendingInteraction, ...]:
    others = tuple(asked for asked in position.pending.interactions if asked.interaction_id != payload.interaction_id)
    if isinstance(payload, InteractionResolved):
        return others
    asked = PendingInteraction(
        interaction_id=payload.interaction_id,
        kind=payload.kind,
        call_id=payload.call_id,
        prompt=payload.prompt,
        run_id=event.run_id,
        turn_id=event.turn_id,
        step=payload.step,
        event_id=event.event_id,
    )
    return (*others, asked)


def _inputs(
    position: AgentExecutionPosition, event: Event | RecordedEvent, payload: InputReceived | InputApplied
) -> tuple[PendingInput, ...]:
    others = tuple(given for given in position.pending.inputs if given.input_id != payload.input_id)
    if isinstance(payload, InputApplied):
        return others
    return (*others, PendingInput(input_id=payload.input_id, message=payload.message, event_id=event.event_id))
