"""Mutants of opening and closing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from statebook.capabilities import Capabilities
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import JournalHead
from statebook.plugins import Requirement, load_backend
from statebook_conformance.mutants.forward import ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend


class _Reopening(ForwardJournal):
    """After close() it quietly opens the store again."""

    def __init__(self, backend: ForwardBackend) -> None:
        super().__init__(backend.inner.open_journal())
        self._backend = backend
        self._closed = False

    def close(self) -> None:
        self._closed = True
        super().close()

    def head(self, key: ThreadKey) -> JournalHead | None:
        if self._closed:
            other = self._backend.inner.open_journal()
            try:
                return other.head(key)
            finally:
                other.close()
        return super().head(key)


class _ReopeningBackend(ForwardBackend):
    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        del require
        return _Reopening(self)


WORKS_AFTER_CLOSE: Final = Mutant(
    "works-after-close",
    "a closed store opens its connection again by itself and goes on",
    _ReopeningBackend,
    canary=True,
)

JUNK_OPTIONS_IGNORED: Final = Mutant(
    "junk-options-ignored",
    "options are read by name and the rest is ignored, so that a misspelt durability option is silently the default",
    ForwardBackend,
    opener="open_lenient_mutant",
)


class _OwnDataBackend(ForwardBackend):
    """Declares what the inner backend declares, but keeps everything in the process."""

    def __init__(self, inner: TargetBackend) -> None:
        super().__init__(inner)
        self._namespace = f"own-{os.getpid()}"

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        own = load_backend(f"memory://{self._namespace}").open_journal(require)
        return _Declaring(own, self.inner)


class _Declaring(ForwardJournal):
    def __init__(self, own: ThreadJournalStore, declared: TargetBackend) -> None:
        super().__init__(own)
        store = declared.open_journal()
        self._capabilities = store.capabilities
        store.close()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities


FORK_LOCAL_DATA: Final = Mutant(
    "fork-local-data",
    "data stays in the process, host sharing is declared all the same",
    _OwnDataBackend,
    base="file://{directory}",
)
