"""Copies of core's modules with one name replaced, and backends whose journal is core's, made wrong in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec, module_from_spec
from types import ModuleType

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.target import TargetBackend


def core_copy(name: str, **replaced: object) -> ModuleType:
    """A second, private copy of a module, in which some global names mean something else.

    Args:
        name: The module.
        replaced: The names and their new values.

    Returns:
        The copy; the module itself stays as it is.

    Raises:
        ValueError: There is no such module, or it has no such name: the mutant has to follow the code.
    """
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ValueError(f"there is no module {name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for key, value in replaced.items():
        if not hasattr(module, key):
            raise ValueError(f"{name} has no {key}; the mutant has to follow the code")
        setattr(module, key, value)
    return module


def journal_class(**replaced: object) -> Callable[[AtomicJournalStorage], ThreadJournalStore]:
    """Core's journal store with some global names of its module replaced."""
    made: Callable[[AtomicJournalStorage], ThreadJournalStore] = core_copy(
        "statebook.atomic_journal", **replaced
    ).AtomicThreadJournalStore
    return made


class CoreBackend(ForwardBackend):
    """A backend whose journal is a changed copy of core's, over its atomic storage or a given one."""

    def __init__(
        self,
        inner: TargetBackend,
        journal: Callable[[AtomicJournalStorage], ThreadJournalStore],
        atomic: Callable[[AtomicJournalStorage], AtomicJournalStorage] | None = None,
    ) -> None:
        """Take the good backend and the changed copy.

        Args:
            inner: The good backend.
            journal: Makes the changed journal over a storage.
            atomic: Changes the storage too.
        """
        super().__init__(inner)
        self._journal = journal
        self._atomic = atomic

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        storage = super().open_atomic(require)
        return storage if self._atomic is None else self._atomic(storage)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return self.journal_over(self.open_atomic(require))

    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return self._journal(storage)


def changed_core(**replaced: object) -> Callable[[TargetBackend], ForwardBackend]:
    """What `Mutant` takes as `wrap`: core's journal with global names of its module replaced."""

    def wrap(inner: TargetBackend) -> ForwardBackend:
        return CoreBackend(inner, journal_class(**replaced))

    return wrap


def wrapped_core(
    change: Callable[[ThreadJournalStore], ThreadJournalStore],
) -> Callable[[TargetBackend], ForwardBackend]:
    """What `Mutant` takes as `wrap`: every journal wrapped, the backend's own and core's over a given storage."""

    class Wrapped(ForwardBackend):
        def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
            return change(super().open_journal(require))

        def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
            return change(super().journal_over(storage))

    return Wrapped
