"""Checkpoint: what a `state/checkpoint` or `state/initialized` event holds: a state, its position, its provenance.

The payload is the state's JSON object itself, so that it can be read without statebook, with two more members:
`position`, and in an initialised journal `provenance`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self, cast

from pydantic import JsonValue

from statebook.codec import Json
from statebook.threads.payload import STATE_CHECKPOINT, STATE_INITIALIZED, EventPayload, Message
from statebook.threads.position import AgentExecutionPosition

POSITION: Final = "position"
"""The payload's member that is the execution position."""
PROVENANCE: Final = "provenance"
"""The payload's member that says where an initialised state comes from."""


class Checkpoint(EventPayload):
    """A complete working state.

    Attributes:
        state: The state: a JSON object without the members `position` and `provenance`.
        position: Where execution stands; None in a checkpoint that was written without one.
        provenance: Where the state comes from, in an initialised journal.
    """

    event_type: ClassVar[str] = STATE_CHECKPOINT
    event_required: ClassVar[bool] = True
    state: Message
    position: AgentExecutionPosition | None = None
    provenance: Message | None = None

    def to_json(self) -> dict[str, Json]:
        """The payload: the state with position and provenance as members.

        Raises:
            ValueError: The state has a member of one of these names.
        """
        taken = {POSITION, PROVENANCE} & self.state.keys()
        if taken:
            raise ValueError(f"a state has no member {min(taken)!r} of its own; a checkpoint puts it there")
        payload = cast("dict[str, Json]", dict(self.state))
        if self.position is not None:
            payload[POSITION] = cast("Json", self.position.model_dump(mode="json", exclude_none=True))
        if self.provenance is not None:
            payload[PROVENANCE] = cast("Json", self.provenance)
        return payload

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read a checkpoint from a decoded payload.

        Raises:
            pydantic.ValidationError: It is no JSON object, or its position or provenance is none.
        """
        if not isinstance(value, dict):
            return cls.model_validate({"state": value})
        state = dict(cast("dict[str, JsonValue]", value))
        position, provenance = state.pop(POSITION, None), state.pop(PROVENANCE, None)
        return cls.model_validate({"state": state, "position": position, "provenance": provenance})


class Initialization(Checkpoint):
    """The checkpoint that an initialised or forked journal begins with."""

    event_type: ClassVar[str] = STATE_INITIALIZED
