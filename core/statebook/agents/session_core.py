"""What `AgentSessions` and `BlockingAgentSessions` share: everything of a session but the waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

import msgspec

from statebook.agents.calls import SessionCall
from statebook.agents.gate import CLOSED, SessionGate, Turn
from statebook.agents.runtime_context import RuntimeContext
from statebook.agents.session_store import ConflictPolicy, LoadedState, SessionStore
from statebook.capabilities import DISTRIBUTED
from statebook.errors import StatebookError, StoreClosed
from statebook.keys import SessionKey
from statebook.patience import PATIENCE, Patience
from statebook.state import AgentStateStore

CACHE_MAX: Final = 1_024
"""How many states are cached by default."""
WAITERS_MAX: Final = 1_000
"""How many calls may wait for one session by default."""


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How sessions are served.

    Attributes:
        policy: What a save does that meets a newer version.
        distributed: Whether several machines serve these sessions; then the store must be shared by network, and
            nothing is cached (S10).
        cache_max: How many states are cached; 0 for none.
        waiters_max: How many calls may wait for one session; more are `Overloaded`.
        patience: How often and how patiently a save is sent again that was not applied, or perhaps.

    Raises:
        ValueError: A number is out of range.
    """

    policy: ConflictPolicy = ConflictPolicy.FAIL
    distributed: bool = False
    cache_max: int = CACHE_MAX
    waiters_max: int = WAITERS_MAX
    patience: Patience = PATIENCE

    def __post_init__(self) -> None:
        if self.cache_max < 0 or self.waiters_max < 0:
            raise ValueError("cache_max and waiters_max must be at least 0")


class SessionCore:
    """Gate, calls in flight, loading and saving. Safe from many threads; `load` and `save` block.

    Attributes:
        gate: Whose turn it is.
        states: The stored states.
    """

    def __init__(
        self, store: AgentStateStore, options: SessionOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Serve sessions from a store, which stays the caller's to close.

        Raises:
            UnsupportedCapability: The deployment is distributed, and the store is a single host's (S10).
        """
        if options.distributed:
            store.capabilities.require(DISTRIBUTED)
        self.gate = SessionGate(options.waiters_max)
        self.states = SessionStore(
            store,
            policy=options.policy,
            cache_max=0 if options.distributed else options.cache_max,
            sleep=sleep,
            patience=options.patience,
        )
        self._calls: dict[SessionKey, SessionCall] = {}
        self._lock = Lock()
        self._ended = False

    # -------------------------------------------------------------------------------------------------------- calls

    def begin(self, turn: Turn, loaded: LoadedState, context: RuntimeContext) -> SessionCall:
        """Begin the call that has its turn.

        Raises:
            StoreClosed: A shutdown has begun meanwhile; the body does not run.
        """
        call = SessionCall(turn.session, loaded, context)
        with self._lock:
            if self.gate.closed:
                raise StoreClosed(CLOSED, key=turn.session.name)
            self._calls[turn.session] = call
        return call

    def save(self, call: SessionCall) -> None:
        """Save what a call has changed since it was loaded or saved last; nothing where it has changed nothing.

        Raises:
            StoreClosed: The sessions have ended; what the call has changed since is not stored.
            StatebookError: As the store raises it.
        """
        with call.saving:
            unsaved = call.unsaved()
            if unsaved is None:
                return
            if self._ended:
                raise StoreClosed(
                    "the sessions have ended, and the call was saved as it stood then; what it has changed since is "
                    "not stored",
                    key=call.session.name,
                )
            base, state = unsaved
            call.saved(state, self.states.save(call.session, base, state))

    def end(self, turn: Turn, call: SessionCall | None) -> None:
        """End a call, and give its turn to the next one."""
        if call is not None:
            with self._lock:
                self._calls.pop(turn.session, None)
        self.gate.leave(turn)

    def interrupt(self, session: SessionKey, message: str | None) -> bool:
        """Ask the call in flight of exactly this session to stop; tell whether there is one (S6)."""
        with self._lock:
            call = self._calls.get(session)
        if call is None:
            return False
        call.interrupt.request(message)
        return True

    # ----------------------------------------------------------------------------------------------------- shutdown

    def shut_down(self) -> None:
        """Refuse new and waiting calls, and tell those in flight. Harmless again."""
        with self._lock:
            self.gate.close()
            calls = tuple(self._calls.values())
        for call in calls:
            call.shut_down()

    def cut(self) -> tuple[SessionCall, ...]:
        """The calls that are still in flight: save each of them, then `finish`. None after `finish`."""
        with self._lock:
            return () if self._ended else tuple(self._calls.values())

    def finish(self, outcomes: Sequence[BaseException | None]) -> None:
        """Store nothing from now on; raise the first failure of the last saves, with the others noted on it."""
        self._ended = True
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"another session failed as well: {other}")
            raise failures[0]


def note_unsaved(error: BaseException, failed: StatebookError) -> None:
    """Note on a body's error that the state could not be saved either."""
    error.add_note(f"the state of the call could not be saved: {failed}")
