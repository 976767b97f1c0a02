"""One call of a session: its snapshot, its interrupt control, its context. Lives in one process only."""

from __future__ import annotations

from threading import Lock

from statebook.agents.agent_state import AgentState
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_store import LoadedState
from statebook.keys import SessionKey


class InterruptControl:
    """Tells one call that it is to stop. Runtime only: never stored, gone with the call."""

    def __init__(self) -> None:
        """Begin without an interrupt."""
        self._lock = Lock()
        self._requested = False
        self._message: str | None = None

    @property
    def requested(self) -> bool:
        """Whether the call is to stop."""
        return self._requested

    @property
    def message(self) -> str | None:
        """What the interrupter said, or None."""
        return self._message

    def request(self, message: str | None = None) -> None:
        """Ask the call to stop; the first message stays."""
        with self._lock:
            if not self._requested:
                self._requested = True
                self._message = message


class SessionCall:
    """One call in flight.

    Attributes:
        session: The session.
        base: What was loaded when the call began.
        interrupt: How the call is told to stop; look at it between steps.
    """

    def __init__(self, session: SessionKey, base: LoadedState, context: RuntimeContext) -> None:
        """Begin a call on a snapshot."""
        self.session = session
        self.base = base
        self.interrupt = InterruptControl()
        self._context = context.with_state(base.state)
        self._state = base.state
        self._saved = False

    @property
    def state(self) -> AgentState:
        """The call's own snapshot. Assign a new one to change it; it is saved when the call ends."""
        return self._state

    @state.setter
    def state(self, state: AgentState) -> None:
        if (state.user_id, state.session_id) != (self.session.user_id, self.session.session_id):
            raise ValueError("a call can only set the state of its own session")
        self._state = state
        self._context = self._context.with_state(state)

    @property
    def context(self) -> RuntimeContext:
        """The surroundings of the call, with its state put in."""
        return self._context

    @property
    def changed(self) -> bool:
        """Whether there is something to save."""
        return self._state is not self.base.state and self._state != self.base.state

    def rebased(self, saved: LoadedState) -> None:
        """Go on from what has just been saved, so that the end of the call saves only what comes after."""
        self.base = saved
        self.state = saved.state
