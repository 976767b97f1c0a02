"""A backend whose stores are core's over its atomic storage, with that storage as its medium.

Whatever the backend below is, its records can be damaged and its stored heads can be misread: what mutants of damage
need. A medium in memory makes these mutants fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import BackendUnavailable
from statebook.journal import ThreadJournalStore
from statebook.medium import Medium
from statebook.model import PAGE_MAX
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.target import TargetBackend

_HEAD: Final = "head"

AtomicChange: TypeAlias = Callable[[AtomicJournalStorage], AtomicJournalStorage]
JournalChange: TypeAlias = Callable[[ThreadJournalStore], ThreadJournalStore]
StateChange: TypeAlias = Callable[[AgentStateStore], AgentStateStore]


class AtomicMedium(Medium):
    """The heads and blobs of an atomic storage as records: `<scope>/head` and `<scope>/<blob>`."""

    def __init__(self, storage: AtomicJournalStorage) -> None:
        """Show a storage, which is closed with this medium."""
        self._storage = storage
        self._headless: dict[str, None] = {}

    def records(self) -> tuple[str, ...]:
        """Every head, and every blob of a scope that has or had a head."""
        heads = self._storage.list_scopes("", None, PAGE_MAX).names
        found = [f"{scope}/{_HEAD}" for scope in heads]
        for scope in {**dict.fromkeys(heads), **self._headless}:
            found += [f"{scope}/{name}" for name in self._storage.list_blobs(scope, None, PAGE_MAX).names]
        return tuple(sorted(found))

    def read(self, record: str) -> bytes:
        """Read a head or blob."""
        scope, name = _parts(record)
        if name == _HEAD:
            head = self._storage.read_head(scope)
            data = None if head is None else head.data
        else:
            data = self._storage.read_blob(scope, name)
        if data is None:
            raise KeyError(record)
        return data

    def write(self, record: str, data: bytes) -> None:
        """Replace a head or blob, around the rule that blobs never change."""
        scope, name = _parts(record)
        head = self._storage.read_head(scope)
        if name == _HEAD:
            self._commit(scope, None if head is None else head.token, data, {})
            return
        self._storage.delete_blobs(scope, [name])
        token = self._commit(
            scope, None if head is None else head.token, b"" if head is None else head.data, {name: data}
        )
        if head is None:
            self._storage.delete_head(scope, token)

    def remove(self, record: str) -> None:
        """Remove a head or blob."""
        scope, name = _parts(record)
        if name != _HEAD:
            self.read(record)
            self._storage.delete_blobs(scope, [name])
            return
        head = self._storage.read_head(scope)
        if head is None:
            raise KeyError(record)
        self._storage.delete_head(scope, head.token)
        self._headless[scope] = None

    def close(self) -> None:
        """Close the storage."""
        self._storage.close()

    def _commit(self, scope: str, expected: str | None, head: bytes, blobs: dict[str, bytes]) -> str:
        token = self._storage.commit(scope, expected, head, blobs)
        if isinstance(token, CommitConflict):
            raise BackendUnavailable("somebody writes beside the medium", key=scope)
        return token


def _parts(record: str) -> tuple[str, str]:
    scope, _, name = record.rpartition("/")
    return scope, name


class OverAtomic(ForwardBackend):
    """Core's stores over the inner backend's atomic storage, each of the three changed or not."""

    def __init__(
        self,
        inner: TargetBackend,
        *,
        atomic: AtomicChange | None = None,
        journal: JournalChange | None = None,
        state: StateChange | None = None,
    ) -> None:
        """Take a backend that has an atomic storage, and what changes its stores."""
        super().__init__(inner)
        self._atomic, self._journal, self._state = atomic, journal, state

    def _storage(self) -> AtomicJournalStorage:
        storage = self.inner.open_atomic()
        return storage if self._atomic is None else self._atomic(storage)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        del require
        journal = self.inner.journal_over(self._storage())
        return journal if self._journal is None else self._journal(journal)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        del require
        state = AtomicAgentStateStore(self._storage())
        return state if self._state is None else self._state(state)

    def open_medium(self) -> Medium:
        """The records of the atomic storage."""
        return AtomicMedium(self.inner.open_atomic())


def over_atomic(
    *, atomic: AtomicChange | None = None, journal: JournalChange | None = None, state: StateChange | None = None
) -> Callable[[TargetBackend], ForwardBackend]:
    """What `Mutant` takes as `wrap`, for mutants over core's stores.

    Args:
        atomic: Changes each atomic storage below a store; the medium is shown as it is.
        journal: Changes each journal store.
        state: Changes each state store.

    Returns:
        The function.
    """

    def wrap(inner: TargetBackend) -> ForwardBackend:
        return OverAtomic(inner, atomic=atomic, journal=journal, state=state)

    return wrap
