"""Agent state above the contract: the state's document, sessions that load and save it, the context of a call.

Each works on any `AgentStateStore`. Public names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from statebook.agents.agent_state import (
        AGENT_STATE_KEY as AGENT_STATE_KEY,
        AGENT_STATE_SCHEMA as AGENT_STATE_SCHEMA,
        AgentState as AgentState,
        PermissionContext as PermissionContext,
        PlanModeContext as PlanModeContext,
        TasksContext as TasksContext,
        ToolContext as ToolContext,
    )
    from statebook.agents.blocking_sessions import BlockingAgentSessions as BlockingAgentSessions
    from statebook.agents.calls import InterruptControl as InterruptControl, SessionCall as SessionCall
    from statebook.agents.runtime_context import (
        RuntimeContext as RuntimeContext,
        resolve_agent_state as resolve_agent_state,
    )
    from statebook.agents.session_core import SessionOptions as SessionOptions
    from statebook.agents.session_store import ConflictPolicy as ConflictPolicy, LoadedState as LoadedState
    from statebook.agents.sessions import AgentSessions as AgentSessions

_PUBLIC: Final = {
    "AGENT_STATE_KEY": "agent_state",
    "AGENT_STATE_SCHEMA": "agent_state",
    "AgentState": "agent_state",
    "PermissionContext": "agent_state",
    "PlanModeContext": "agent_state",
    "TasksContext": "agent_state",
    "ToolContext": "agent_state",
    "BlockingAgentSessions": "blocking_sessions",
    "InterruptControl": "calls",
    "SessionCall": "calls",
    "RuntimeContext": "runtime_context",
    "resolve_agent_state": "runtime_context",
    "SessionOptions": "session_core",
    "ConflictPolicy": "session_store",
    "LoadedState": "session_store",
    "AgentSessions": "sessions",
}

__all__ = [
    "AGENT_STATE_KEY",
    "AGENT_STATE_SCHEMA",
    "AgentSessions",
    "AgentState",
    "BlockingAgentSessions",
    "ConflictPolicy",
    "InterruptControl",
    "LoadedState",
    "PermissionContext",
    "PlanModeContext",
    "RuntimeContext",
    "SessionCall",
    "SessionOptions",
    "TasksContext",
    "ToolContext",
    "resolve_agent_state",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, sorted."""
    return list(__all__)
