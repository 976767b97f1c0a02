"""The hooks of `memory://`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook_backends.memory.options import MemoryOptions

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.journal import ThreadJournalStore
    from statebook.state import AgentStateStore


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return MemoryOptions.from_url(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage of a name and namespace."""
    from statebook_backends.memory.atomic import MemoryAtomicJournalStorage

    return MemoryAtomicJournalStorage(_own(options))


@hookimpl
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore:
    """Open the journal store of a name and namespace."""
    from statebook_backends.memory.journal import MemoryThreadJournalStore

    return MemoryThreadJournalStore(_own(options))


@hookimpl
def statebook_open_state(options: BackendOptions) -> AgentStateStore:
    """Open the state store of a name and namespace."""
    from statebook_backends.memory.state import MemoryAgentStateStore

    return MemoryAgentStateStore(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Empty a named store's namespace; open stores of it are empty too. A private store has nothing to destroy."""
    from statebook_backends.memory.registry import SHARED

    own = _own(options)
    if own.name is not None:
        SHARED.forget(own.name, own.namespace)
    return True


def _own(options: BackendOptions) -> MemoryOptions:
    if not isinstance(options, MemoryOptions):
        raise InvalidConfiguration(
            f"memory:// takes MemoryOptions, not {type(options).__name__}", option="options", backend="memory"
        )
    return options
