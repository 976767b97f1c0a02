"""AgentSessions: load at call entry, save at call exit, one call a session at a time, for asyncio.

Calls of one session run in the order in which they came, one at a time, and wait without blocking a thread; calls of
different sessions run side by side. Each works on its own snapshot. Storage is called on a small pool of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar

from statebook.agents.agent_state import AgentState
from statebook.agents.calls import SessionCall
from statebook.agents.gate import CLOSED, Turn
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_core import SessionCore, SessionOptions, note_unsaved
from statebook.agents.session_store import LoadedState
from statebook.errors import StatebookError, StoreClosed
from statebook.keys import SessionKey
from statebook.state import AgentStateStore

T = TypeVar("T")


class AgentSessions:
    """The sessions of one agent process, for asyncio. As an async context manager it shuts down at the end."""

    def __init__(self, store: AgentStateStore, options: SessionOptions | None = None, *, workers: int = 4) -> None:
        """Serve sessions from a store, which stays the caller's to close.

        Args:
            store: The state store.
            options: How sessions are served; None for the defaults.
            workers: How many threads call the store.

        Raises:
            UnsupportedCapability: The deployment is distributed, and the store is a single host's (S10).
            ValueError: `workers` is below 1.
        """
        if workers < 1:
            raise ValueError("workers must be at least 1")
        self._core = SessionCore(store, options or SessionOptions())
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="statebook-sessions")

    async def __aenter__(self) -> Self:
        """Give the sessions themselves."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut down; an error of the body wins over one of the shutdown."""
        try:
            await self.shutdown()
        except StatebookError as failed:
            if error is None:
                raise
            note_unsaved(error, failed)

    # -------------------------------------------------------------------------------------------------------- calls

    @asynccontextmanager
    async def call(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
        typed: Mapping[type, object] | None = None,
    ) -> AsyncIterator[SessionCall]:
        """Run one call of a session: wait for its turn, load, let the body work, save what it has changed.

        Guarantees one write a call (S4): the state that the body has set is saved however the body ends. An error of
        the body goes on; an error of the save is raised, or noted on the body's. Cancelling the caller never cancels a
        save that has begun, and the next call of the session waits for it (ERR-4).

        Args:
            session_id: The session.
            user_id: The user, or None.
            thread_id: The thread, or None; passed on in the context.
            attributes: Attributes of the context, by name.
            typed: Attributes of the context, by type.

        Yields:
            The call.

        Raises:
            InvalidKey: An id is outside ID-1.
            TypeError: A typed attribute is no instance of its type.
            Overloaded: Too many calls wait for this session.
            StoreClosed: `shutdown` has begun; or it has ended before the body did, and its last changes are not stored.
            VersionConflict: The state was changed elsewhere, by the policy.
            StatebookError: As the store raises it.
        """
        context = RuntimeContext(session_id, user_id=user_id, thread_id=thread_id, attributes=attributes, typed=typed)
        turn = await self._enter(SessionKey(user_id, session_id))
        call: SessionCall | None = None
        try:
            call = self._core.begin(turn, await self._run(lambda: self._core.states.load(turn.session)), context)
            try:
                yield call
            except BaseException as error:
                await self._save_after(call, error)
                raise
            await self._save(call)
        finally:
            self._core.end(turn, call)

    async def _save_after(self, call: SessionCall, error: BaseException) -> None:
        try:
            await self._save(call)
        except StatebookError as failed:
            note_unsaved(error, failed)

    async def _save(self, call: SessionCall) -> None:
        if call.unsaved() is not None:
            await self._run(lambda: self._core.save(call))

    def interrupt(self, session_id: str, *, user_id: str | None = None, message: str | None = None) -> bool:
        """Ask the call in flight of exactly this session to stop. From any thread.

        Args:
            session_id: The session.
            user_id: The user, or None.
            message: What to tell it.

        Returns:
            Whether there was a call in flight.

        Raises:
            InvalidKey: An id is outside ID-1.
        """
        return self._core.interrupt(SessionKey(user_id, session_id), message)

    # ------------------------------------------------------------------------------------------------------- states

    async def clear_context(self, session_id: str, *, user_id: str | None = None) -> LoadedState:
        """Empty a session's messages and summary, and save at once; permissions, tools, tasks and plan mode stay.

        Waits for its turn like a call. Clears what is stored now, whatever the policy is; a session that is not there
        stays so (S7).

        Args:
            session_id: The session.
            user_id: The user, or None.

        Returns:
            What is stored now.

        Raises:
            StatebookError: As for `call`.
        """
        turn = await self._enter(SessionKey(user_id, session_id))
        try:
            return await self._run(lambda: self._core.states.clear(turn.session))
        finally:
            self._core.end(turn, None)

    async def read(self, session_id: str, *, user_id: str | None = None) -> LoadedState:
        """Read a stored state, whatever is cached or in flight: for admin, audit and migration (S12).

        Args:
            session_id: The session.
            user_id: The user, or None.

        Returns:
            The state and its version; a new one with version None where there is none.

        Raises:
            InvalidKey: An id is outside ID-1.
            StatebookError: As the store raises it.
        """
        session = SessionKey(user_id, session_id)
        return await self._run(lambda: self._core.states.read(session))

    async def write(self, state: AgentState, *, version: int | None) -> LoadedState:
        """Write a state directly, conditional on the version that was read: for admin, audit and migration (S12).

        Waits for its turn like a call.

        Args:
            state: The state.
            version: The version it must have, or None where there must be none.

        Returns:
            What is stored now.

        Raises:
            VersionConflict: The slot has another version, whatever the policy of the calls is.
            UnsupportedFormat: What is stored was saved by a newer schema; nothing changed.
            StatebookError: As for `call`.
        """
        turn = await self._enter(SessionKey(state.user_id, state.session_id))
        try:
            return await self._run(lambda: self._core.states.save_exactly(state, version))
        finally:
            self._core.end(turn, None)

    async def shutdown(self, *, grace_s: float = 10.0) -> tuple[SessionKey, ...]:
        """End: refuse new and waiting calls, interrupt those in flight, save them with `shutdown_interrupted` (S4).

        Calls that end by themselves within the grace time save as usual; what they save says `shutdown_interrupted`
        too, unless they said that they were `complete`. Those that do not end are saved as they stand, and whatever
        they change afterwards is `StoreClosed`.

        Args:
            grace_s: How long calls in flight may take to end, in seconds.

        Returns:
            The sessions whose calls did not end in time.

        Raises:
            StatebookError: A state could not be saved; the others were.
        """
        self._core.shut_down()
        idle = asyncio.wrap_future(self._core.gate.idle())
        await asyncio.wait((idle,), timeout=grace_s)
        idle.cancel()
        cut = self._core.cut()
        outcomes = await asyncio.gather(*(self._save(call) for call in cut), return_exceptions=True)
        self._pool.shutdown(wait=False)
        self._core.finish(outcomes)
        return tuple(call.session for call in cut)

    # ----------------------------------------------------------------------------------------------------- internal

    async def _enter(self, session: SessionKey) -> Turn:
        turn = self._core.gate.enter(session)
        try:
            await asyncio.wrap_future(turn.future)
        except BaseException:
            self._core.gate.leave(turn)
            raise
        return turn

    async def _run(self, call: Callable[[], T]) -> T:
        """Call the store on a thread, to its end even where the caller is cancelled meanwhile."""
        done = asyncio.wrap_future(self._submit(call))
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return done.result()
        failed = done.exception()
        if isinstance(failed, StatebookError):
            note_unsaved(cancelled, failed)
        raise cancelled

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        try:
            return self._pool.submit(call)
        except RuntimeError as error:  # the pool's word for having been shut down
            raise StoreClosed(CLOSED) from error
