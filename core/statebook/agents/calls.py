"""One call of a session: its snapshot, its interrupt control, its context. Lives in one process only."""

from __future__ import annotations

from threading import Lock

from statebook.agents.agent_state import AgentState
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_store import LoadedState
from statebook.keys import SessionKey


class InterruptControl:
    """Tells one call that it is to stop. Runtime only: never stored, gone with the call (S3)."""

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
        """Ask the call to stop; the first message stays.

        Args:
            message: What to tell the call, or None.
        """
        with self._lock:
            if not self._requested:
                self._message = message
                self._requested = True

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse to be pickled: an interrupt reaches a call of this process only."""
        raise TypeError("an InterruptControl is never stored or sent")


class SessionCall:
    """One call in flight. Its body may run in any one thread; `save` may run in another.

    Attributes:
        session: The session.
        interrupt: How the call is told to stop; look at it between steps.
        saving: Held by whoever saves the call, so that its saves follow each other.
    """

    def __init__(self, session: SessionKey, base: LoadedState, context: RuntimeContext) -> None:
        """Begin a call on a snapshot of its own: changing it in place changes neither cache nor base.

        Args:
            session: The session.
            base: What was loaded.
            context: The surroundings.
        """
        self.session = session
        self.interrupt = InterruptControl()
        self.saving = Lock()
        self._lock = Lock()
        self._base = base
        self._state = base.state.model_copy(deep=True)
        self._context = context.with_state(self._state)
        self._shutdown = False
        self._completed = False

    @property
    def base(self) -> LoadedState:
        """What was loaded when the call began, or saved by it last."""
        return self._base

    @property
    def state(self) -> AgentState:
        """The call's own snapshot. Assign a new one to change it; it is saved when the call ends.

        Raises:
            ValueError: The state assigned is another session's.
        """
        return self._state

    @state.setter
    def state(self, state: AgentState) -> None:
        if (state.user_id, state.session_id) != (self.session.user_id, self.session.session_id):
            raise ValueError("a call can only set the state of its own session")
        with self._lock:
            self._set(state)

    @property
    def context(self) -> RuntimeContext:
        """The surroundings of the call, with its state put in."""
        return self._context

    def complete(self) -> None:
        """Say that the call has done all it was to do: a shutdown that comes now has not cut it short."""
        self._completed = True

    def shut_down(self) -> None:
        """Tell the call that the process ends. What it saves from now on says so, unless it had completed."""
        self._shutdown = True
        self.interrupt.request("shutdown")

    def unsaved(self) -> tuple[LoadedState, AgentState] | None:
        """What there is to save and what it is based on, or None where nothing has changed."""
        with self._lock:
            if self._shutdown and not self._completed and not self._state.shutdown_interrupted:
                self._set(self._state.model_copy(update={"shutdown_interrupted": True}))
            return None if self._state == self._base.state else (self._base, self._state)

    def saved(self, sent: AgentState, stored: LoadedState) -> None:
        """Go on from what has just been saved; what the body has assigned meanwhile stays unsaved.

        Args:
            sent: What `unsaved` gave.
            stored: What is stored now: the same, or merged into a newer state.
        """
        with self._lock:
            self._base = stored
            if self._state is sent and stored.state != sent:
                self._set(stored.state.model_copy(deep=True))

    def _set(self, state: AgentState) -> None:
        self._state = state
        self._context = self._context.with_state(state)
