"""Make a backend whose stores are wrapped, with a memory that all handles of one process share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, TypeAlias

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal, ForwardState
from statebook_conformance.target import TargetBackend


class Memory:
    """What a mutant remembers beside the store, for all handles of one backend in one process.

    Attributes:
        lock: Held for a look at, or a change of, what is kept.
        kept: Whatever the mutant keeps.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self.lock = RLock()
        self.kept: dict[Any, Any] = {}


class BadState(ForwardState):
    """A state store with a memory; a mutant changes one call of it."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        """Wrap a store."""
        super().__init__(inner)
        self.memory = memory


class BadJournal(ForwardJournal):
    """A journal store with a memory; a mutant changes one call of it."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        """Wrap a store."""
        super().__init__(inner)
        self.memory = memory


class BadAtomic(ForwardAtomic):
    """An atomic storage with a memory; a mutant changes one call of it."""

    def __init__(self, inner: AtomicJournalStorage, memory: Memory) -> None:
        """Wrap a storage."""
        super().__init__(inner)
        self.memory = memory


StateMaker: TypeAlias = Callable[[AgentStateStore, Memory], AgentStateStore]
JournalMaker: TypeAlias = Callable[[ThreadJournalStore, Memory], ThreadJournalStore]
AtomicMaker: TypeAlias = Callable[[AtomicJournalStorage, Memory], AtomicJournalStorage]


class WrappedBackend(ForwardBackend):
    """A backend whose stores are wrapped as they are opened."""

    def __init__(
        self,
        inner: TargetBackend,
        *,
        state: StateMaker | None = None,
        journal: JournalMaker | None = None,
        atomic: AtomicMaker | None = None,
    ) -> None:
        """Take the good backend and what wraps its stores."""
        super().__init__(inner)
        self._state, self._journal, self._atomic = state, journal, atomic
        self._memory = Memory()

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        store = super().open_atomic(require)
        return store if self._atomic is None else self._atomic(store, self._memory)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        store = super().open_journal(require)
        return store if self._journal is None else self._journal(store, self._memory)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        store = super().open_state(require)
        return store if self._state is None else self._state(store, self._memory)


def wrapping(
    *, state: StateMaker | None = None, journal: JournalMaker | None = None, atomic: AtomicMaker | None = None
) -> Callable[[TargetBackend], ForwardBackend]:
    """What `Mutant` takes as `wrap`, for stores that are wrapped one by one.

    Args:
        state: Wraps each state store.
        journal: Wraps each journal store.
        atomic: Wraps each atomic storage.

    Returns:
        The function.
    """

    def wrap(inner: TargetBackend) -> ForwardBackend:
        return WrappedBackend(inner, state=state, journal=journal, atomic=atomic)

    return wrap
