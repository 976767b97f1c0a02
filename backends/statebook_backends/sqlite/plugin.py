"""The hooks of `sqlite://`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook.plugins import driver
from statebook_backends.sqlite.options import SqliteOptions

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.format_fixtures import FormatFixtures
    from statebook.journal import ThreadJournalStore
    from statebook.medium import Medium
    from statebook.state import AgentStateStore

_INSTALL = "apt-get install libsqlite3-dev, then build Python again (or use a Python that comes with sqlite3)"


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return SqliteOptions.from_url(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage of a file and namespace."""
    with driver(_INSTALL):
        from statebook_backends.sqlite.atomic import SqliteAtomicJournalStorage

    return SqliteAtomicJournalStorage(_own(options))


@hookimpl
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore:
    """Open the journal store of a file and namespace."""
    with driver(_INSTALL):
        from statebook_backends.sqlite.journal import SqliteThreadJournalStore

    return SqliteThreadJournalStore(_own(options))


@hookimpl
def statebook_open_state(options: BackendOptions) -> AgentStateStore:
    """Open the state store of a file and namespace."""
    with driver(_INSTALL):
        from statebook_backends.sqlite.state import SqliteAgentStateStore

    return SqliteAgentStateStore(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Delete all rows of a namespace. The file stays, and so do other namespaces."""
    with driver(_INSTALL):
        from statebook_backends.sqlite.namespaces import destroy_namespace

    destroy_namespace(_own(options))
    return True


@hookimpl
def statebook_open_medium(options: BackendOptions) -> Medium:
    """Show the rows of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.sqlite.medium import SqliteMedium

    return SqliteMedium(_own(options))


@hookimpl
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures:
    """Show what earlier releases stored."""
    from statebook_backends.sqlite.format_fixtures import SqliteFixtures

    return SqliteFixtures(_own(options))


def _own(options: BackendOptions) -> SqliteOptions:
    if not isinstance(options, SqliteOptions):
        raise InvalidConfiguration(
            f"sqlite:// takes SqliteOptions, not {type(options).__name__}", option="options", backend="sqlite"
        )
    return options
