"""What all event payloads have in common: the base class of their models, their types, and how an event is built."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, JsonValue

from statebook.codec import Json, encode_value
from statebook.model import Event

RUN_START: Final = "run/start"
RUN_END: Final = "run/end"
RUN_OUTPUT: Final = "run/output"
STEP_START: Final = "step/start"
STEP_PHASE: Final = "step/phase"
STEP_END: Final = "step/end"
INPUT_RECEIVED: Final = "input/received"
INPUT_APPLIED: Final = "input/applied"
MODEL_DISPATCH: Final = "model/dispatch"
MODEL_CHUNK: Final = "model/chunk"
MODEL_END: Final = "model/end"
MODEL_REQUEST_STARTED: Final = "model/request_started"
MODEL_REQUEST_USAGE: Final = "model/request_usage"
MODEL_REQUEST_ENDED: Final = "model/request_ended"
TOOL_REQUESTED: Final = "tool/requested"
TOOL_DISPATCH: Final = "tool/dispatch"
ACTION_END: Final = "action/end"
TOOL_RESULT: Final = "tool/result"
INTERACTION_REQUESTED: Final = "interaction/requested"
INTERACTION_RESOLVED: Final = "interaction/resolved"
STATE_INITIALIZED: Final = "state/initialized"
STATE_CHECKPOINT: Final = "state/checkpoint"
STATE_RESTORED: Final = "state/restored"
RECOVERY_APPLIED: Final = "recovery/applied"

Message: TypeAlias = dict[str, JsonValue]
"""A message: a JSON object of the framework."""

RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "paused", "interrupted"]
"""How a run ended. After `paused` and `interrupted` it is to be continued."""
EndOutcome: TypeAlias = Literal["completed", "failed", "cancelled"]
ActionOutcome: TypeAlias = Literal["completed", "failed", "unknown"]
"""How a tool's action ended, by its executor. `unknown`: it cannot tell whether the effect happened."""
ResultOutcome: TypeAlias = Literal["completed", "failed", "denied", "not_executed", "unknown"]
"""What a tool result says to the model."""
RequestOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "unknown"]


class EventPayload(BaseModel):
    """The payload of one event type. Frozen; unknown members are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_type: ClassVar[str] = ""
    """The event type."""
    event_required: ClassVar[bool] = False
    """Whether events of this type are written as required."""

    def to_json(self) -> dict[str, Json]:
        """The payload as plain values, without the members that are None."""
        return cast("dict[str, Json]", self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read a payload from plain values.

        Args:
            value: A decoded JSON document.

        Returns:
            The payload.

        Raises:
            pydantic.ValidationError: It is no such payload.
        """
        return cls.model_validate(value)


def build_event(
    payload: EventPayload, *, event_id: str, occurred_at: int, run_id: str | None = None, turn_id: str | None = None
) -> Event:
    """Build an event from a payload model. No I/O.

    Args:
        payload: The payload; its class gives type and `required`.
        event_id: The receiver's key for deduplication.
        occurred_at: Unix time in milliseconds.
        run_id: The execution run, or None.
        turn_id: The turn, or None.

    Returns:
        The event.

    Raises:
        InvalidKey: An id is outside ID-1.
        InvalidValue: The payload holds what JSON cannot hold (VAL-1), or the time is out of range.
    """
    return Event(
        event_id=event_id,
        type=payload.event_type,
        occurred_at=occurred_at,
        payload=encode_value(payload.to_json()),
        run_id=run_id,
        turn_id=turn_id,
        required=payload.event_required,
    )
