"""Loading and saving an `AgentState`, blocking and without a gate.

Here are the policies for a save that meets a newer version.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from threading import Lock
from typing import Final

import msgspec

from statebook.agents.agent_state import AGENT_STATE_KEY, AgentState
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError, StateCorrupt, VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ExpectedVersion, StateValue
from statebook.patience import PATIENCE, Patience
from statebook.state import AgentStateStore

MERGE_TRIES_MAX: Final = 32
"""How often a save under `OVERWRITE` or `APPEND_MERGE` meets a newer version before it gives up."""


class ConflictPolicy(Enum):
    """What a save does that meets a newer version than the call has loaded (S13).

    `FAIL`: `VersionConflict`; nothing of the call is stored. `OVERWRITE`: the call's state replaces the newer one,
    whose changes are lost: for sessions that only one process writes, and those whose authority is a journal that is
    mirrored into the slot; where the newer state is equal, nothing is written. `APPEND_MERGE`: the messages that the
    call has appended are put behind those of the newer state; everything else is the newer state's. A call that has
    changed earlier messages cannot be merged and fails.
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
    several processes serve one session. It holds documents, so that nobody can change a cached state in place.
    """

    def __init__(
        self,
        store: AgentStateStore,
        *,
        policy: ConflictPolicy,
        cache_max: int,
        sleep: Callable[[float], None] = time.sleep,
        patience: Patience = PATIENCE,
    ) -> None:
        """Wrap a store; it stays the caller's to close.

        Args:
            store: The state store.
            policy: What a save does that meets a newer version.
            cache_max: How many states are held at most; 0 for none.
            sleep: Waits so many seconds before a save is sent again.
            patience: How often and how patiently a save is sent again that was not applied, or perhaps.
        """
        self._store = store
        self._policy = policy
        self._cache_max = cache_max
        self._sleep = sleep
        self._patience = patience
        self._cache: OrderedDict[SessionKey, StateValue] = OrderedDict()
        self._lock = Lock()

    def load(self, session: SessionKey) -> LoadedState:
        """Load a session's state, from the cache or the store; a new one where there is none.

        Args:
            session: The session.

        Returns:
            The state and its version; nobody else has this object.

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
        return self.read(session) if cached is None else _decoded(session, cached)

    def read(self, session: SessionKey) -> LoadedState:
        """Load a session's state from the store, whatever the cache has; raises as `load` does."""
        found = self._store.load(_slot(session))
        if found is None:
            return LoadedState(AgentState(session_id=session.session_id, user_id=session.user_id), None)
        loaded = _decoded(session, found)
        self._remember(session, found)
        return loaded

    def save(self, session: SessionKey, base: LoadedState, state: AgentState) -> LoadedState:
        """Save what a call has made of a state, by the policy.

        An outcome that stays unknown after the bounded resends is raised, unless the stored document turns out to be
        the very one that was sent. Resending is safe, because every attempt is conditional on the version.

        Args:
            session: The session.
            base: What the call had loaded.
            state: What it has made of it.

        Returns:
            What is stored now, and its version.

        Raises:
            ValueError: The state names another session.
            VersionConflict: The slot is at another version, and the policy is to fail or the call cannot be merged.
            InvalidValue: The state holds what JSON cannot hold; nothing changed.
            LimitExceeded: The state is larger than the store takes; nothing changed.
            OutcomeUnknown: Perhaps saved; load again.
            BackendUnavailable: Certainly not saved.
            StoreClosed: The store is closed.
        """
        version = base.version
        for _ in range(MERGE_TRIES_MAX):
            try:
                return self._put(session, state, version)
            except VersionConflict as conflict:
                if self._policy is ConflictPolicy.FAIL:
                    raise
                latest = self.read(session)
                if self._policy is ConflictPolicy.APPEND_MERGE:
                    state, base = _merged(latest, base, state, conflict), latest
                elif latest.state == state:
                    return latest
                version = latest.version
        raise VersionConflict(
            f"the session's state changed {MERGE_TRIES_MAX} times while it was saved; try later", key=session.name
        )

    def save_exactly(self, state: AgentState, version: int | None) -> LoadedState:
        """Save a state iff its session's slot has a version, whatever the policy is.

        What is stored is read first, so that a state of a newer schema or a damaged one is not replaced.

        Args:
            state: The state.
            version: The version, or None where there must be none.

        Returns:
            What is stored now, and its version.

        Raises:
            StatebookError: As `load` and `save`.
        """
        session = SessionKey(state.user_id, state.session_id)
        self.read(session)
        return self._put(session, state, version)

    def clear(self, session: SessionKey) -> LoadedState:
        """Empty a session's messages and summary in what is stored now, whatever the policy is (S7).

        Args:
            session: The session.

        Returns:
            What is stored now; a session that is not there stays so.

        Raises:
            StatebookError: As `load` and `save`.
        """
        conflict: VersionConflict | None = None
        for _ in range(MERGE_TRIES_MAX):
            latest = self.read(session)
            cleared = latest.state.cleared()
            if cleared == latest.state:
                return latest
            try:
                return self._put(session, cleared, latest.version)
            except VersionConflict as error:
                conflict = error
        raise conflict or AssertionError("there was at least one try")

    # ----------------------------------------------------------------------------------------------------- internal

    def _put(self, session: SessionKey, state: AgentState, version: int | None) -> LoadedState:
        """Save iff the slot has the version; a failure of any kind drops the cache's entry."""
        if (state.user_id, state.session_id) != (session.user_id, session.session_id):
            raise ValueError("the state to be saved names another session")
        value = state.to_json()
        try:
            stored = StateValue(value, self._send(session, value, ABSENT if version is None else version))
        except StatebookError:
            self._forget(session)
            raise
        self._remember(session, stored)
        return LoadedState(state.model_copy(deep=True), stored.version)

    def _send(self, session: SessionKey, value: bytes, expected: ExpectedVersion) -> int:
        unknown: OutcomeUnknown | None = None
        refused: BackendUnavailable | None = None
        for pause in self._patience.pauses():
            if pause > 0:
                self._sleep(pause)
            try:
                return self._store.save(_slot(session), value, expected=expected)
            except OutcomeUnknown as error:
                unknown = error
            except BackendUnavailable as error:
                refused = error
            except VersionConflict:
                if unknown is None:
                    raise
                return self._landed(session, value, unknown)
        raise unknown or refused or AssertionError("there was at least one attempt")

    def _landed(self, session: SessionKey, value: bytes, unknown: OutcomeUnknown) -> int:
        """A save of unknown outcome met a newer version: perhaps its own."""
        found = self._store.load(_slot(session))
        if found is not None and found.value == value:
            return found.version
        raise OutcomeUnknown(
            "the state was perhaps saved, and somebody has saved another one since; load again and decide",
            key=session.name,
        ) from unknown

    def _forget(self, session: SessionKey) -> None:
        with self._lock:
            self._cache.pop(session, None)

    def _remember(self, session: SessionKey, stored: StateValue) -> None:
        if self._cache_max == 0:
            return
        with self._lock:
            self._cache[session] = stored
            self._cache.move_to_end(session)
            while len(self._cache) > self._cache_max:
                self._cache.popitem(last=False)


def _decoded(session: SessionKey, stored: StateValue) -> LoadedState:
    state = AgentState.from_json(stored.value)
    if (state.user_id, state.session_id) != (session.user_id, session.session_id):
        raise StateCorrupt(
            "the document in this slot is another session's state",
            what="agent_state",
            expected=session.name,
            found=SessionKey(state.user_id, state.session_id).name,
            key=session.name,
        )
    return LoadedState(state, stored.version)


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
