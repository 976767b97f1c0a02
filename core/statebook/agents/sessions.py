"""AgentSessions: load at call entry, save at call exit, one call a session at a time, for asyncio.

Calls of one session run in the order in which they came, one at a time, and wait without blocking a thread; calls of
different sessions run side by side. Each works on its own snapshot. Storage is called on a small pool of threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from statebook.agents.agent_state import AgentState
from statebook.agents.calls import SessionCall
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_store import ConflictPolicy, LoadedState, SessionStore
from statebook.capabilities import DISTRIBUTED
from statebook.errors import Overloaded, StatebookError, StoreClosed
from statebook.keys import SessionKey
from statebook.state import AgentStateStore

T = TypeVar("T")

CACHE_MAX: Final = 1_024
"""How many states are cached by default."""
WAITERS_MAX: Final = 1_000
"""How many calls may wait for one session by default."""


class AgentSessions:
    """The sessions of one agent process. Used from one event loop."""

    def __init__(
        self,
        store: AgentStateStore,
        *,
        policy: ConflictPolicy = ConflictPolicy.FAIL,
        distributed: bool = False,
        cache_max: int = CACHE_MAX,
        waiters_max: int = WAITERS_MAX,
        workers: int = 4,
    ) -> None:
        """Serve sessions from a store, which stays the caller's to close.

        Args:
            store: The state store.
            policy: What a save does that meets a newer version.
            distributed: Whether several machines serve these sessions; then the store must be shared by network, and
                nothing is cached.
            cache_max: How many states are cached; 0 for none.
            waiters_max: How many calls may wait for one session; more are `Overloaded`.
            workers: How many threads call the store.

        Raises:
            UnsupportedCapability: `distributed`, and the store is a single host's.
            ValueError: A number is out of range.
        """
        if cache_max < 0 or waiters_max < 0 or workers < 1:
            raise ValueError("cache_max and waiters_max must be at least 0, workers at least 1")
        if distributed:
            store.capabilities.require(DISTRIBUTED)
        self._states = SessionStore(store, policy=policy, cache_max=0 if distributed else cache_max)
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="statebook-sessions")
        self._waiters_max = waiters_max
        self._queues: dict[SessionKey, deque[asyncio.Future[None]]] = {}
        self._calls: dict[SessionKey, SessionCall] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    # -------------------------------------------------------------------------------------------------------- calls

    @asynccontextmanager
    async def call(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> AsyncIterator[SessionCall]:
        """Run one call of a session: wait for its turn, load, let the body work, save what it has changed.

        The state that the body has set is saved however the body ends, in one write. An error of the body goes on; an
        error of the save is raised, or noted on the body's. Cancelling the caller never cancels a save that has begun,
        and the next call of the session waits for it (ERR-4).

        Args:
            session_id: The session.
            user_id: The user, or None.
            thread_id: The thread, or None; passed on in the context.
            attributes: Attributes of the context.

        Yields:
            The call.

        Raises:
            InvalidKey: An id is outside ID-1.
            Overloaded: Too many calls wait for this session.
            StoreClosed: `shutdown` has begun.
            VersionConflict: The state was changed elsewhere, by the policy.
            StatebookError: As the store raises it.
        """
        context = RuntimeContext(session_id, user_id=user_id, thread_id=thread_id, attributes=attributes)
        session = SessionKey(user_id, session_id)
        await self._enter(session)
        call: SessionCall | None = None
        try:
            call = SessionCall(session, await self._run(lambda: self._states.load(session)), context)
            self._calls[session] = call
            try:
                yield call
            except BaseException as error:
                await self._save_after(call, error)
                raise
            await self._save(call)
        finally:
            if call is not None and self._calls.get(session) is call:
                del self._calls[session]
            self._leave(session)

    async def _save_after(self, call: SessionCall, error: BaseException) -> None:
        try:
            await self._save(call)
        except StatebookError as failed:
            error.add_note(f"the state of the call could not be saved: {failed}")

    async def _save(self, call: SessionCall) -> None:
        if call.changed:
            base, state = call.base, call.state
            call.rebased(await self._run(lambda: self._states.save(call.session, base, state)))

    def interrupt(self, session_id: str, *, user_id: str | None = None, message: str | None = None) -> bool:
        """Ask the call in flight of exactly this session to stop.

        Args:
            session_id: The session.
            user_id: The user, or None.
            message: What to tell it.

        Returns:
            Whether there was a call in flight.
        """
        call = self._calls.get(SessionKey(user_id, session_id))
        if call is None:
            return False
        call.interrupt.request(message)
        return True

    # ------------------------------------------------------------------------------------------------------- states

    async def clear_context(self, session_id: str, *, user_id: str | None = None) -> AgentState:
        """Empty a session's messages and summary, and save at once; permissions, tools, tasks and plan mode stay.

        Waits for its turn like a call.

        Args:
            session_id: The session.
            user_id: The user, or None.

        Returns:
            The state as it is stored now.

        Raises:
            StatebookError: As for `call`.
        """
        async with self.call(session_id, user_id=user_id) as call:
            call.state = call.state.cleared()
        return call.state

    async def read(self, session_id: str, *, user_id: str | None = None) -> LoadedState:
        """Read a stored state, whatever is cached or in flight: for admin, audit and migration.

        Args:
            session_id: The session.
            user_id: The user, or None.

        Returns:
            The state and its version; a new one with version None where there is none.

        Raises:
            StatebookError: As the store raises it.
        """
        session = SessionKey(user_id, session_id)
        return await self._run(lambda: self._states.read(session))

    async def write(self, state: AgentState, *, version: int | None) -> LoadedState:
        """Write a state directly, conditional on the version that was read: for admin, audit and migration.

        Waits for its turn like a call.

        Args:
            state: The state.
            version: The version it must have, or None where there must be none.

        Returns:
            What is stored now.

        Raises:
            VersionConflict: The slot has another version, whatever the policy of the calls is.
            StatebookError: As the store raises it.
        """
        session = SessionKey(state.user_id, state.session_id)
        await self._enter(session)
        try:
            self._states.forget(session)
            current = await self._run(lambda: self._states.read(session))
            base = LoadedState(current.state, version)
            return await self._run(lambda: self._states.save_exactly(session, base, state))
        finally:
            self._leave(session)

    async def shutdown(self, *, grace_s: float = 10.0) -> tuple[SessionKey, ...]:
        """End: refuse new calls, interrupt those in flight, save each with `shutdown_interrupted`.

        Calls that end by themselves within the grace time save as usual. Those that do not are saved as they stand.

        Args:
            grace_s: How long calls in flight may take to end, in seconds.

        Returns:
            The sessions whose calls were cut short.

        Raises:
            StatebookError: A state could not be saved; the others were.
        """
        self._closed = True
        for waiters in self._queues.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(StoreClosed("the sessions are shutting down"))
        for call in self._calls.values():
            call.state = call.state.model_copy(update={"shutdown_interrupted": True})
            call.interrupt.request("shutdown")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        cut = tuple(self._calls.values())
        results = await asyncio.gather(*(self._save(call) for call in cut), return_exceptions=True)
        self._pool.shutdown(wait=False)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return tuple(call.session for call in cut)

    # --------------------------------------------------------------------------------------------------------- gate

    async def _enter(self, session: SessionKey) -> None:
        if self._closed:
            raise StoreClosed("the sessions are shutting down")
        waiters = self._queues.get(session)
        if waiters is None:
            self._queues[session] = deque()
            self._idle.clear()
            return
        if len(waiters) >= self._waiters_max:
            raise Overloaded(f"{len(waiters)} calls wait for this session already", key=session.name)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in waiters:
                waiters.remove(waiter)
            elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._leave(session)
            raise

    def _leave(self, session: SessionKey) -> None:
        waiters = self._queues[session]
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        del self._queues[session]
        if not self._queues:
            self._idle.set()

    async def _run(self, call: Callable[[], T]) -> T:
        """Call the store on a thread, to its end even where the caller is cancelled meanwhile."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            with suppress(Exception):
                future.result()
            raise cancelled
        return future.result()
