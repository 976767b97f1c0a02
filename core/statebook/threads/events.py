"""The events that statebook understands: their types by family, and a frozen payload model for each (J2, J3).

A payload model refuses members that it does not know. Its class says the event type and whether the event is
`required`: whether a reader that does not know the type must refuse to recover. Ids of run and turn stand in the
event's envelope. A model's nullable members are left out of the stored JSON where they are None: absent means unknown,
and an unknown amount is never written as zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from statebook.threads.payload import (
    ACTION_END,
    INPUT_APPLIED,
    INPUT_RECEIVED,
    INTERACTION_REQUESTED,
    INTERACTION_RESOLVED,
    MODEL_CHUNK,
    MODEL_DISPATCH,
    MODEL_END,
    MODEL_REQUEST_ENDED,
    MODEL_REQUEST_STARTED,
    MODEL_REQUEST_USAGE,
    RECOVERY_APPLIED,
    RUN_END,
    RUN_OUTPUT,
    RUN_START,
    STATE_RESTORED,
    STEP_END,
    STEP_PHASE,
    STEP_START,
    TOOL_DISPATCH,
    TOOL_REQUESTED,
    TOOL_RESULT,
    ActionOutcome,
    EndOutcome,
    EventPayload,
    Message,
    RequestOutcome,
    ResultOutcome,
    RunOutcome,
)
from statebook.threads.position import Count, Phase

# ------------------------------------------------------------------------------------------------------ runs and steps


class RunStart(EventPayload):
    """A run begins.

    Attributes:
        input: What was asked, as the caller gave it.
        continues: The run that this one continues, with its accumulated progress; None for a new call.
    """

    event_type = RUN_START
    event_required = True
    input: JsonValue = None
    continues: str | None = None


class RunEnd(EventPayload):
    """A run ends.

    Attributes:
        outcome: How.
        output: What it gave, where it is not in a `run/output` event.
        error: What went wrong, as text without payloads.
    """

    event_type = RUN_END
    event_required = True
    outcome: RunOutcome = "completed"
    output: JsonValue = None
    error: str | None = None


class RunOutput(EventPayload):
    """A run gives its answer, or a part of it.

    Attributes:
        output: The answer.
        final: Whether nothing follows in this run.
    """

    event_type = RUN_OUTPUT
    output: JsonValue = None
    final: bool = True


class StepStart(EventPayload):
    """A step of the run begins, in the phase `reasoning`.

    Attributes:
        step: Its index in the run, from 0.
    """

    event_type = STEP_START
    event_required = True
    step: Count


class StepPhase(EventPayload):
    """A step passes a boundary.

    Attributes:
        step: The step.
        phase: The phase that begins.
    """

    event_type = STEP_PHASE
    event_required = True
    step: Count
    phase: Phase


class StepEnd(EventPayload):
    """A step ends.

    Attributes:
        step: The step.
        outcome: How.
    """

    event_type = STEP_END
    event_required = True
    step: Count
    outcome: EndOutcome = "completed"


# -------------------------------------------------------------------------------------------------------------- inputs


class InputReceived(EventPayload):
    """An input has arrived; it is not in the state yet.

    Attributes:
        input_id: Its id.
        message: The message.
    """

    event_type = INPUT_RECEIVED
    event_required = True
    input_id: str
    message: Message


class InputApplied(EventPayload):
    """An input becomes a part of the state.

    Attributes:
        input_id: Its id.
        message: The message as it enters the state.
    """

    event_type = INPUT_APPLIED
    event_required = True
    input_id: str
    message: Message


# -------------------------------------------------------------------------------------------------------------- models


class TokenUsage(BaseModel):
    """What a model call used, as far as it is known. None is unknown, and never zero.

    Attributes:
        input_tokens: Tokens read.
        output_tokens: Tokens written.
        cached_input_tokens: Those of `input_tokens` that came from a cache.
        reasoning_tokens: Those of `output_tokens` that were reasoning.
        total_tokens: The provider's own total.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None


class ModelDispatch(EventPayload):
    """A model call is about to be made.

    Attributes:
        call_id: The model call.
        model: The model's name, or None.
        provider: Who serves it, or None.
    """

    event_type = MODEL_DISPATCH
    event_required = True
    call_id: str
    model: str | None = None
    provider: str | None = None


class ModelChunk(EventPayload):
    """A part of a model's answer has arrived. Never a complete message.

    Attributes:
        call_id: The model call.
        index: The place of the part, from 0.
        delta: The part.
    """

    event_type = MODEL_CHUNK
    call_id: str
    index: Count
    delta: JsonValue = None


class ModelEnd(EventPayload):
    """A model call has ended.

    Attributes:
        call_id: The model call.
        outcome: How. Only `completed` counts as an iteration and has a place in the transcript.
        message: The complete message, or None.
        usage: What it used, or None where that is unknown.
        error: What went wrong, as text without payloads.
    """

    event_type = MODEL_END
    event_required = True
    call_id: str
    outcome: EndOutcome = "completed"
    message: Message | None = None
    usage: TokenUsage | None = None
    error: str | None = None


class ModelRequestStarted(EventPayload):
    """One transport attempt of a model call begins (J23).

    Attributes:
        request_id: The attempt's own id.
        call_id: The model call that it serves.
        attempt: Which attempt of that call, from 1.
        provider: Who is asked, or None.
        model: The model's name, or None.
        step: The step of the run, or None.
        provenance: Where the request comes from, as the framework says.
    """

    event_type = MODEL_REQUEST_STARTED
    request_id: str
    call_id: str
    attempt: int = Field(ge=1, strict=True)
    provider: str | None = None
    model: str | None = None
    step: Count | None = None
    provenance: Message | None = None


class ModelRequestUsage(EventPayload):
    """What an attempt has used so far; may commit before it ends (J23).

    Attributes:
        request_id: The attempt.
        usage: All of it up to now, not what was added.
    """

    event_type = MODEL_REQUEST_USAGE
    request_id: str
    usage: TokenUsage


class ModelRequestEnded(EventPayload):
    """An attempt has ended (J23).

    Attributes:
        request_id: The attempt.
        outcome: How; `unknown` where nobody can tell whether the provider did it.
        usage: What it used in all, or None where that is unknown.
        provider_request_id: The provider's name for it, or None.
        status: The provider's status code, or None.
        error: The kind of failure, without payloads.
    """

    event_type = MODEL_REQUEST_ENDED
    request_id: str
    outcome: RequestOutcome
    usage: TokenUsage | None = None
    provider_request_id: str | None = None
    status: int | None = Field(default=None, strict=True)
    error: str | None = None


# --------------------------------------------------------------------------------------------------------------- tools


class ToolRequested(EventPayload):
    """The model asks for a tool call. Nothing has been done.

    Attributes:
        call_id: The tool call.
        name: The tool.
        arguments: Its arguments.
        model_call_id: The model call that asked, or None.
    """

    event_type = TOOL_REQUESTED
    event_required = True
    call_id: str
    name: str
    arguments: JsonValue = None
    model_call_id: str | None = None


class ToolDispatch(EventPayload):
    """A tool is about to act. Durable before its effect, so that the effect is never unknown to the journal.

    Attributes:
        call_id: The tool call.
        name: The tool, or None where `tool/requested` says it.
        idempotency_key: What the tool's receiver deduplicates by, or None.
    """

    event_type = TOOL_DISPATCH
    event_required = True
    call_id: str
    name: str | None = None
    idempotency_key: str | None = None


class ActionEnd(EventPayload):
    """A tool has acted. Its result is not in the state yet.

    Attributes:
        call_id: The tool call.
        outcome: How; `unknown` where the executor cannot tell.
        result: What it gave.
        error: What went wrong, as text without payloads.
    """

    event_type = ACTION_END
    event_required = True
    call_id: str
    outcome: ActionOutcome = "completed"
    result: JsonValue = None
    error: str | None = None


class ToolResult(EventPayload):
    """A tool's result becomes a part of the state.

    Attributes:
        call_id: The tool call.
        outcome: What it says to the model.
        content: The result.
        message: The complete message; None where it is made of `call_id` and `content`.
        source: `executed`: by this agent's executor; `reconciled`: found out after its outcome was uncertain;
            `provided`: given from outside, as for a denied or an external tool.
        step: The step that had asked for it, where it is not the current one.
        provenance: Of a reconciled result: the original run, turn and event, and the reason.
    """

    event_type = TOOL_RESULT
    event_required = True
    call_id: str
    outcome: ResultOutcome = "completed"
    content: JsonValue = None
    message: Message | None = None
    source: Literal["executed", "reconciled", "provided"] = "executed"
    step: Count | None = None
    provenance: Message | None = None


# -------------------------------------------------------------------------------------------------------- interactions


class InteractionRequested(EventPayload):
    """Somebody is asked: an approval, a question, an external tool.

    Attributes:
        interaction_id: The interaction.
        kind: What is asked for, such as `approval`.
        call_id: The tool call that it is about, or None.
        prompt: What is asked.
        step: The step of the run.
    """

    event_type = INTERACTION_REQUESTED
    event_required = True
    interaction_id: str
    kind: str
    call_id: str | None = None
    prompt: JsonValue = None
    step: Count = 0


class InteractionResolved(EventPayload):
    """The answer has arrived.

    Attributes:
        interaction_id: The interaction.
        answer: The answer.
    """

    event_type = INTERACTION_RESOLVED
    event_required = True
    interaction_id: str
    answer: JsonValue = None


# ------------------------------------------------------------------------------------------------------------ recovery


class StateRestored(EventPayload):
    """A writer has restored the state and goes on from it. Changes nothing.

    Attributes:
        checkpoint_seq: The checkpoint that it began with, or None.
        as_of_seq: Everything up to this seq is in the state.
        phase: The phase that it goes on in, or None.
    """

    event_type = STATE_RESTORED
    event_required = True
    checkpoint_seq: Count | None = None
    as_of_seq: Count
    phase: Phase | None = None


class RecoveryApplied(EventPayload):
    """Uncertain outcomes were settled; the results and the checkpoint are in the same batch (J15).

    Attributes:
        reason: Who found out, and how.
        call_ids: The tool calls.
        as_of_seq: The journal's last seq when it was decided.
    """

    event_type = RECOVERY_APPLIED
    event_required = True
    reason: str
    call_ids: tuple[str, ...]
    as_of_seq: Count


def message_of(payload: BaseModel) -> Message | None:
    """The complete message that an event adds to the conversation, or None.

    Args:
        payload: A decoded payload.

    Returns:
        The message of an applied input, a completed model call or a tool result.
    """
    if isinstance(payload, InputApplied):
        return payload.message
    if isinstance(payload, ModelEnd):
        return payload.message if payload.outcome == "completed" else None
    if isinstance(payload, ToolResult):
        if payload.message is not None:
            return payload.message
        return {"role": "tool", "tool_call_id": payload.call_id, "content": payload.content}
    return None
