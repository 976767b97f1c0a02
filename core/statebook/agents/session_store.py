"""Loading and saving an `AgentState`, blocking and without a gate.

Here are the policies for a save that meets a newer version.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from threading import Lock
from typing import Final

import msgspec

from statebook.agents.agent_state import AGENT_STATE_KEY, AgentState
from statebook.errors import StatebookError, StateCorrupt, VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ExpectedVersion
from statebook.state import AgentStateStore

MERGE_TRIES_MAX: Final = 32
"""How often a save under `OVERWRITE` or `APPEND_MERGE` meets a newer version before it gives up."""


class ConflictPolicy(Enum):
    """What a save does that meets a newer version than the call has loaded.

    `FAIL`: `VersionConflict`; nothing of the call is stored. `OVERWRITE`: the call's state replaces the newer one,
    whose changes are lost: for sessions that only one process writes. `APPEND_MERGE`: the messages that the call has
    appended are put behind those of the newer state; everything else is the newer state's. A call that has changed
    earlier messages cannot be merged and fails.
    """

    FAIL = "fail"
    OVERWRITE = "overwrite"
    APPEND_MERGE = "append-merge"


class LoadedState(msgspec.Struct, frozen=True):
    """A state and the version that it was loaded or saved at.

    Attributes:
        state: The state.
        version: The slot's version, or None where the session is new.
    """

    state: AgentState
    version: int | None


class SessionStore:
    """The `agent_state` slots of a state store, with a bounded cache. Safe from many threads.

    The cache is asked at call entry only; it can be older than the store where other processes write. That is safe: the
    save at call exit is conditional on the version, and a conflict drops the entry. Turn it off (`cache_max=0`) where
    several processes serve one session.
    """

    def __init__(self, store: AgentStateStore, *, policy: ConflictPolicy, cache_max: int) -> None:
        """Wrap a store; it stays the caller's to close.

        Args:
            store: The state store.
            policy: What a save does that meets a newer version.
            cache_max: How many states are held at most; 0 for none.
        """
        self._store = store
        self._policy = policy
        self._cache_max = cache_max
        self._cache: OrderedDict[SessionKey, LoadedState] = OrderedDict()
        self._lock = Lock()

    def load(self, session: SessionKey) -> LoadedState:
        """Load a session's state, from the cache or the store; a new one where there is none.

        Args:
            session: The session.

        Returns:
            The state and its version.

        Raises:
            StateCorrupt: The stored document is no agent state, or another session's.
            UnsupportedFormat: It was saved by a newer schema.
            BackendUnavailable: The backend did not answer.
            StoreClosed: The store is closed.
        """
        with self._lock:
            cached = self._cache.get(session)
            if cached is not None:
                self._cache.move_to_end(session)
                return cached
        return self.read(session)

    def read(self, session: SessionKey) -> LoadedState:
        """Load a session's state from the store, whatever the cache has; raises as `load` does."""
        found = self._store.load(_slot(session))
        if found is None:
            return LoadedState(AgentState(session_id=session.session_id, user_id=session.user_id), None)
        state = AgentState.from_json(found.value)
        if (state.user_id, state.session_id) != (session.user_id, session.session_id):
            raise StateCorrupt(
                "the document in this slot is another session's state",
                what="agent_state",
                expected=session.name,
                found=SessionKey(state.user_id, state.session_id).name,
                key=session.name,
            )
        loaded = LoadedState(state, found.version)
        self._remember(session, loaded)
        return loaded

    def save(self, session: SessionKey, base: LoadedState, state: AgentState) -> LoadedState:
        """Save what a call has made of a state, by the policy.

        Args:
            session: The session.
            base: What the call had loaded.
            state: What it has made of it.

        Returns:
            What is stored now, and its version.

        Raises:
            ValueError: The state names another session.
            VersionConflict: The slot is at another version, and the policy is to fail or the call cannot be merged.
            LimitExceeded: The state is larger than the store takes; nothing changed.
            OutcomeUnknown: Perhaps saved; load again.
            BackendUnavailable: Certainly not saved.
            StoreClosed: The store is closed.
        """
        if (state.user_id, state.session_id) != (session.user_id, session.session_id):
            raise ValueError("the state to be saved names another session")
        expected: ExpectedVersion = ABSENT if base.version is None else base.version
        for _ in range(MERGE_TRIES_MAX):
            try:
                version = self._store.save(_slot(session), state.to_json(), expected=expected)
            except VersionConflict as conflict:
                self.forget(session)
                if self._policy is ConflictPolicy.FAIL:
                    raise
                latest = self.read(session)
                if self._policy is ConflictPolicy.APPEND_MERGE:
                    state, base = _merged(latest, base, state, conflict), latest
                expected = ABSENT if latest.version is None else latest.version
            except StatebookError:
                self.forget(session)
                raise
            else:
                saved = LoadedState(state, version)
                self._remember(session, saved)
                return saved
        raise VersionConflict(
            f"the session's state changed {MERGE_TRIES_MAX} times while it was saved; try later", key=session.name
        )

    def save_exactly(self, session: SessionKey, base: LoadedState, state: AgentState) -> LoadedState:
        """Save a state iff the slot has the base's version, whatever the policy is; raises as `save` does."""
        return SessionStore(self._store, policy=ConflictPolicy.FAIL, cache_max=0).save(session, base, state)

    def forget(self, session: SessionKey) -> None:
        """Drop a session from the cache, so that the next call loads from the store."""
        with self._lock:
            self._cache.pop(session, None)

    def _remember(self, session: SessionKey, loaded: LoadedState) -> None:
        if self._cache_max == 0:
            return
        with self._lock:
            self._cache[session] = loaded
            self._cache.move_to_end(session)
            while len(self._cache) > self._cache_max:
                self._cache.popitem(last=False)


def _merged(latest: LoadedState, base: LoadedState, state: AgentState, conflict: VersionConflict) -> AgentState:
    """The newest state with the messages that the call has appended behind its own."""
    kept = len(base.state.context)
    if state.context[:kept] != base.state.context:
        raise VersionConflict(
            "the call has changed earlier messages, so that it cannot be merged into the newer state",
            current_version=conflict.current_version,
            key=conflict.key,
        ) from conflict
    return latest.state.model_copy(update={"context": (*latest.state.context, *state.context[kept:])})


def _slot(session: SessionKey) -> StateKey:
    return StateKey(session.user_id, session.session_id, AGENT_STATE_KEY)
