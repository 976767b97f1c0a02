"""RuntimeContext: what one call knows besides its state. Never stored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar, cast

from statebook.agents.agent_state import AgentState
from statebook.keys import check_id

T = TypeVar("T")


class RuntimeContext:
    """The surroundings of one call: who, where, and what the caller passes along.

    Nothing of it is ever persisted. The call's state is put in by the sessions service. Immutable: `with_` methods
    give a new context.
    """

    __slots__ = ("_attributes", "_ids", "_state", "_typed")

    def __init__(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        state: AgentState | None = None,
        attributes: Mapping[str, object] | None = None,
        typed: Mapping[type, object] | None = None,
    ) -> None:
        """Make a context.

        Args:
            session_id: The session.
            user_id: The user, or None.
            thread_id: The thread, or None.
            state: The state of the call.
            attributes: Attributes by name.
            typed: Attributes by type, one a type.

        Raises:
            InvalidKey: An id is outside ID-1.
            TypeError: A typed attribute is no instance of its type.
        """
        check_id(session_id, "session_id")
        if user_id is not None:
            check_id(user_id, "user_id")
        if thread_id is not None:
            check_id(thread_id, "thread_id")
        for kind, value in (typed or {}).items():
            if not isinstance(value, kind):
                raise TypeError(f"the attribute of type {kind.__name__} is a {type(value).__name__}")
        self._ids = (user_id, session_id, thread_id)
        self._state = state
        self._attributes: Mapping[str, object] = MappingProxyType(dict(attributes or {}))
        self._typed: Mapping[type, object] = MappingProxyType(dict(typed or {}))

    @property
    def user_id(self) -> str | None:
        """The user, or None."""
        return self._ids[0]

    @property
    def session_id(self) -> str:
        """The session."""
        return self._ids[1]

    @property
    def thread_id(self) -> str | None:
        """The thread, or None for the session's main thread."""
        return self._ids[2]

    @property
    def state(self) -> AgentState | None:
        """The state of the call, or None outside of one."""
        return self._state

    @property
    def attributes(self) -> Mapping[str, object]:
        """Attributes by name; read only."""
        return self._attributes

    def get(self, kind: type[T]) -> T | None:
        """The attribute of a type, or None where there is none."""
        return cast("T | None", self._typed.get(kind))

    def with_state(self, state: AgentState) -> RuntimeContext:
        """The same context with another state."""
        return self._changed(state=state)

    def with_attribute(self, name: str, value: object) -> RuntimeContext:
        """The same context with one attribute set or replaced."""
        return self._changed(attributes={**self.attributes, name: value})

    def with_typed(self, value: object) -> RuntimeContext:
        """The same context with the attribute of the value's own type set or replaced."""
        return self._changed(typed={**self._typed, type(value): value})

    def _changed(
        self,
        *,
        state: AgentState | None = None,
        attributes: Mapping[str, object] | None = None,
        typed: Mapping[type, object] | None = None,
    ) -> RuntimeContext:
        return RuntimeContext(
            self.session_id,
            user_id=self.user_id,
            thread_id=self.thread_id,
            state=self._state if state is None else state,
            attributes=self._attributes if attributes is None else attributes,
            typed=self._typed if typed is None else typed,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse to be pickled: a context belongs to one call of one process."""
        raise TypeError("a RuntimeContext is never stored or sent; pass the ids instead")

    def __repr__(self) -> str:
        """Ids only: attributes may hold secrets."""
        return f"RuntimeContext(user_id={self.user_id!r}, session_id={self.session_id!r}, thread_id={self.thread_id!r})"


def resolve_agent_state(context: RuntimeContext | None, fallback: AgentState) -> AgentState:
    """The state that a call works on: the context's, or the fallback where there is none.

    Args:
        context: The call's context, or None.
        fallback: The state to use otherwise.

    Returns:
        The state.
    """
    return fallback if context is None or context.state is None else context.state
