"""Mutants of what a disk is told: one flush left out, or one error of a disk dropped, in real stores.

They are made from private copies of a backend's modules, found by name, so that the backend itself stays as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from statebook.atomic import AtomicJournalStorage
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_state import AtomicAgentStateStore
from statebook.journal import ThreadJournalStore
from statebook.options import BackendOptions
from statebook.plugins import Backend, Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.core_copy import core_copy
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend

if TYPE_CHECKING:
    from types import ModuleType

_FILES: Final = "file://{directory}"
_LOGGED: Final = "sqlite:///{directory}/store.db"
_FILE_STORE: Final = "statebook_backends.jsonfile.store"
_FILE_TREE: Final = "statebook_backends.jsonfile.tree"
_FILE_ROOT: Final = "statebook_backends.jsonfile.root"
_TABLES: Final = "statebook_backends.sqlite"

Flush: TypeAlias = Callable[[int], None]


def _options(inner: TargetBackend) -> BackendOptions:
    return cast("Backend", inner).options


class _FileBackend(ForwardBackend):
    """The store of files, of a copy of its module."""

    def __init__(self, inner: TargetBackend, module: ModuleType) -> None:
        super().__init__(inner)
        self._module = module

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        made: AtomicJournalStorage = self._module.JsonFileAtomicJournalStorage(_options(self.inner))
        return made

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return AtomicThreadJournalStore(self.open_atomic())

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        return AtomicAgentStateStore(self.open_atomic())


def _flushing(flush: Flush) -> Callable[[TargetBackend], ForwardBackend]:
    """The store of files with another flush."""

    def disk_of(options: object) -> object:
        del options
        return import_module(_FILE_TREE).Disk(fsync=flush)

    return lambda inner: _FileBackend(inner, core_copy(_FILE_STORE, disk_of=disk_of))


def _files_only(fd: int) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        os.fsync(fd)


def _directories_only(fd: int) -> None:
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.fsync(fd)


def _error_dropped(fd: int) -> None:
    with suppress(OSError):
        os.fsync(fd)


def _without(method: str) -> Callable[[TargetBackend], ForwardBackend]:
    """The store of files that leaves out a step of its own: what a method without an answer does."""

    def wrap(inner: TargetBackend) -> ForwardBackend:
        module = core_copy(_FILE_STORE)
        name = "JsonFileAtomicJournalStorage"
        whole = getattr(module, name)
        if not hasattr(whole, method):
            raise ValueError(f"{name} has no {method}; the mutant has to follow the code")
        setattr(module, name, type(name, (whole,), {method: lambda *_: None}))
        return _FileBackend(inner, module)

    return wrap


def _written_as_far_as_it_goes(fd: int, content: bytes) -> None:
    with suppress(OSError):
        os.write(fd, content)


def _written_once(fd: int, content: bytes) -> None:
    os.write(fd, content)


def _writing(write: Callable[[int, bytes], None]) -> Callable[[TargetBackend], ForwardBackend]:
    """The store of files that writes in another way."""

    def wrap(inner: TargetBackend) -> ForwardBackend:
        tree = core_copy(_FILE_TREE, _write_all=write)
        root = core_copy(_FILE_ROOT, Directory=tree.Directory)
        return _FileBackend(inner, core_copy(_FILE_STORE, open_root=root.open_root))

    return wrap


class _TableBackend(ForwardBackend):
    """The store of tables, of copies of its modules over a changed connection."""

    def __init__(self, inner: TargetBackend, pragma: str) -> None:
        super().__init__(inner)

        def open_writer(settings: object) -> object:
            connection = import_module(f"{_TABLES}.store").open_writer(settings)
            connection.execute(pragma)
            return connection

        session = core_copy(f"{_TABLES}.database", open_writer=open_writer).Session
        self._journal = core_copy(f"{_TABLES}.journal", Session=session)
        self._state = core_copy(f"{_TABLES}.state", Session=session)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        made: ThreadJournalStore = self._journal.SqliteThreadJournalStore(_options(self.inner))
        return made

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        made: AgentStateStore = self._state.SqliteAgentStateStore(_options(self.inner))
        return made


DIRECTORIES_NOT_FLUSHED: Final = Mutant(
    "directories-not-flushed",
    "a file is flushed and renamed, and its directory is not flushed",
    _flushing(_files_only),
    base=_FILES,
)
FILES_NOT_FLUSHED: Final = Mutant(
    "files-not-flushed",
    "a file is renamed over another before its content is flushed",
    _flushing(_directories_only),
    base=_FILES,
)
LOG_NOT_FLUSHED: Final = Mutant(
    "log-not-flushed",
    "commits are written to a log that is never flushed, under a setting that somebody has switched off",
    lambda inner: _TableBackend(inner, "PRAGMA synchronous = OFF"),
    base=_LOGGED,
)
FLUSH_ERROR_DROPPED: Final = Mutant(
    "flush-error-dropped",
    "an error of a flush is dropped, and the write acknowledged",
    _flushing(_error_dropped),
    base=_FILES,
)
GOES_ON_BEHIND_A_FLUSH_ERROR: Final = Mutant(
    "goes-on-behind-a-flush-error",
    "the next call flushes the same descriptor again, which succeeds as the kernel has told its error already",
    _without("_poison"),
    base=_FILES,
)
SPACE_ERROR_DROPPED: Final = Mutant(
    "space-error-dropped",
    "what a full disk did not take is left out, and the rest acknowledged",
    _writing(_written_as_far_as_it_goes),
    base=_FILES,
)
SHORT_WRITE_TAKEN_FOR_WHOLE: Final = Mutant(
    "short-write-taken-for-whole",
    "a write that took a part of the bytes is not followed by one of the rest",
    _writing(_written_once),
    base=_FILES,
)
SHOWN_BEFORE_IT_IS_FLUSHED: Final = Mutant(
    "shown-before-it-is-flushed",
    "a reader is shown a new head as soon as it is renamed, and before its directory is flushed",
    _without("_settle"),
    base=_FILES,
)
