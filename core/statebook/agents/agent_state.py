"""AgentState: everything an agent needs to go on in another process, as one versioned JSON document.

The parts are frozen pydantic models, open where frameworks differ (messages, rules, tasks are JSON objects of the
framework) and closed where statebook must understand them. What belongs to one process only, such as the control by
which a call is interrupted, is no part of it.
"""

from __future__ import annotations

from typing import Final, Self, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from statebook.codec import Json, decode_value, encode_value
from statebook.errors import InvalidValue, StateCorrupt, UnsupportedFormat

AGENT_STATE_KEY: Final = "agent_state"
"""The state key under which a session's `AgentState` is stored."""

AGENT_STATE_SCHEMA: Final = 1
"""The schema version of the document."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PermissionContext(_Part):
    """What the agent may do without asking.

    Attributes:
        mode: The framework's name of the permission mode, or None.
        granted: Rules that were granted, in order.
        denied: Rules that were denied, in order.
        details: Anything else of the framework.
    """

    mode: str | None = None
    granted: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    details: dict[str, JsonValue] = Field(default_factory=dict)


class PlanModeContext(_Part):
    """Whether the agent plans before it acts, and its plan.

    Attributes:
        active: Whether plan mode is on.
        plan: The plan as text, or None.
        details: Anything else of the framework.
    """

    active: bool = Field(default=False, strict=True)
    plan: str | None = None
    details: dict[str, JsonValue] = Field(default_factory=dict)


class TasksContext(_Part):
    """The agent's list of tasks.

    Attributes:
        tasks: The tasks, JSON objects of the framework, in order.
    """

    tasks: tuple[dict[str, JsonValue], ...] = ()


class ToolContext(_Part):
    """What the agent's tools keep between calls.

    Attributes:
        activated_groups: The names of the tool groups that are activated, in order.
        details: Anything else of the framework, by tool.
    """

    activated_groups: tuple[str, ...] = ()
    details: dict[str, JsonValue] = Field(default_factory=dict)


class AgentState(_Part):
    """The state of one agent session.

    Attributes:
        session_id: The session.
        user_id: The user, or None.
        context: The messages, JSON objects of the framework, in order.
        summary: The summary of messages that were compacted away; empty where there is none.
        permissions: What the agent may do without asking.
        plan_mode: Plan mode and plan.
        tasks: The list of tasks.
        tools: What tools keep.
        reply_id: The reply that is being made, or None.
        iteration: The reasoning iteration of the current reply, from 0.
        shutdown_interrupted: Whether a shutdown cut the last call short, so that it is to be continued.
    """

    session_id: str
    user_id: str | None = None
    context: tuple[dict[str, JsonValue], ...] = ()
    summary: str = ""
    permissions: PermissionContext = PermissionContext()
    plan_mode: PlanModeContext = PlanModeContext()
    tasks: TasksContext = TasksContext()
    tools: ToolContext = ToolContext()
    reply_id: str | None = None
    iteration: int = Field(default=0, ge=0, strict=True)
    shutdown_interrupted: bool = Field(default=False, strict=True)

    def to_mapping(self) -> dict[str, JsonValue]:
        """The state as a JSON object, with its schema version: the payload of a checkpoint."""
        body = cast("dict[str, JsonValue]", self.model_dump(mode="json"))
        return {"schema": AGENT_STATE_SCHEMA, **body}

    def to_json(self) -> bytes:
        """The state as one JSON document in UTF-8.

        Raises:
            InvalidValue: It holds what JSON cannot hold (VAL-1).
        """
        return encode_value(cast("dict[str, Json]", self.to_mapping()))

    @classmethod
    def from_mapping(cls, value: object) -> Self:
        """Read a state from a JSON object.

        Args:
            value: What `to_mapping` returned, decoded.

        Returns:
            The state.

        Raises:
            UnsupportedFormat: It was saved by a newer schema; nothing is dropped or guessed.
            StateCorrupt: It is no agent state.
        """
        if not isinstance(value, dict):
            raise StateCorrupt("the document is no agent state", what="agent_state", found=type(value).__name__)
        fields = dict(cast("dict[str, object]", value))
        schema = fields.pop("schema", None)
        if type(schema) is not int or schema != AGENT_STATE_SCHEMA:
            if type(schema) is int and schema > AGENT_STATE_SCHEMA:
                raise UnsupportedFormat(
                    f"the agent state has schema {schema}, this release reads up to {AGENT_STATE_SCHEMA}; use the "
                    "release that wrote it, nothing was changed",
                    what="agent_state",
                    expected=str(AGENT_STATE_SCHEMA),
                    found=str(schema),
                )
            raise StateCorrupt("the agent state names no schema", what="agent_state", found=repr(schema))
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise StateCorrupt(f"the agent state is damaged at {place}: {first['msg']}", what="agent_state") from None

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a state from its JSON document.

        Args:
            data: What `to_json` returned.

        Returns:
            The state.

        Raises:
            UnsupportedFormat: It was saved by a newer schema.
            StateCorrupt: It is no agent state.
        """
        try:
            value = decode_value(data)
        except InvalidValue as error:
            raise StateCorrupt("the agent state is no JSON document", what="agent_state") from error
        return cls.from_mapping(value)

    def cleared(self) -> Self:
        """The same state without messages and summary; permissions, tools, tasks and plan mode stay."""
        return self.model_copy(update={"context": (), "summary": ""})
