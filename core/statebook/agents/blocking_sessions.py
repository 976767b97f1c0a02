"""BlockingAgentSessions: the sessions of one agent process, for code without an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from statebook.agents.agent_state import AgentState
from statebook.agents.calls import SessionCall
from statebook.agents.gate import CLOSED, Turn
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_core import SessionCore, SessionOptions, note_unsaved
from statebook.agents.session_store import LoadedState
from statebook.errors import StatebookError, StoreClosed
from statebook.keys import SessionKey
from statebook.state import AgentStateStore


class BlockingAgentSessions:
    """The same names, promises and errors as `AgentSessions`; waiting and storage block the caller's thread.

    Safe from many threads. As a context manager it shuts down at the end.
    """

    def __init__(
        self,
        store: AgentStateStore,
        options: SessionOptions | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Serve sessions from a store, which stays the caller's to close.

        Args:
            store: The state store.
            options: How sessions are served; None for the defaults.
            sleep: Waits so many seconds before a save is sent again.

        Raises:
            UnsupportedCapability: The deployment is distributed, and the store is a single host's (S10).
        """
        self._core = SessionCore(store, options or SessionOptions(), sleep=sleep)
        self._ended = False

    def __enter__(self) -> Self:
        """Give the sessions themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut down; an error of the body wins over one of the shutdown."""
        try:
            self.shutdown()
        except StatebookError as failed:
            if error is None:
                raise
            note_unsaved(error, failed)

    @contextmanager
    def call(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
        typed: Mapping[type, object] | None = None,
    ) -> Iterator[SessionCall]:
        """As `AgentSessions.call`; waiting for the turn blocks this thread."""
        context = RuntimeContext(session_id, user_id=user_id, thread_id=thread_id, attributes=attributes, typed=typed)
        turn = self._enter(SessionKey(user_id, session_id))
        call: SessionCall | None = None
        try:
            call = self._core.begin(turn, self._core.states.load(turn.session), context)
            try:
                yield call
            except BaseException as error:
                self._save_after(call, error)
                raise
            self._core.save(call)
        finally:
            self._core.end(turn, call)

    def _save_after(self, call: SessionCall, error: BaseException) -> None:
        try:
            self._core.save(call)
        except StatebookError as failed:
            note_unsaved(error, failed)

    def interrupt(self, session_id: str, *, user_id: str | None = None, message: str | None = None) -> bool:
        """As `AgentSessions.interrupt`."""
        return self._core.interrupt(SessionKey(user_id, session_id), message)

    def clear_context(self, session_id: str, *, user_id: str | None = None) -> LoadedState:
        """As `AgentSessions.clear_context`."""
        turn = self._enter(SessionKey(user_id, session_id))
        try:
            return self._core.states.clear(turn.session)
        finally:
            self._core.end(turn, None)

    def read(self, session_id: str, *, user_id: str | None = None) -> LoadedState:
        """As `AgentSessions.read`."""
        session = SessionKey(user_id, session_id)
        if self._ended:
            raise StoreClosed(CLOSED, key=session.name)
        return self._core.states.read(session)

    def write(self, state: AgentState, *, version: int | None) -> LoadedState:
        """As `AgentSessions.write`."""
        turn = self._enter(SessionKey(state.user_id, state.session_id))
        try:
            return self._core.states.save_exactly(state, version)
        finally:
            self._core.end(turn, None)

    def shutdown(self, *, grace_s: float = 10.0) -> tuple[SessionKey, ...]:
        """As `AgentSessions.shutdown`."""
        self._core.shut_down()
        wait((self._core.gate.idle(),), timeout=grace_s)
        cut = self._core.cut()
        outcomes = [self._outcome(call) for call in cut]
        self._ended = True
        self._core.finish(outcomes)
        return tuple(call.session for call in cut)

    def _outcome(self, call: SessionCall) -> StatebookError | None:
        try:
            self._core.save(call)
        except StatebookError as failed:
            return failed
        return None

    def _enter(self, session: SessionKey) -> Turn:
        turn = self._core.gate.enter(session)
        try:
            turn.future.result()
        except BaseException:
            self._core.gate.leave(turn)
            raise
        return turn
