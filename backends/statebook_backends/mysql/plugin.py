"""The hooks of `mysql://`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook.plugins import driver
from statebook_backends.mysql.options import MysqlOptions

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.format_fixtures import FormatFixtures
    from statebook.journal import ThreadJournalStore
    from statebook.medium import Medium
    from statebook.state import AgentStateStore

_INSTALL = 'python -m pip install "statebook[mysql]"'


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return MysqlOptions.from_url(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage of a database and namespace."""
    with driver(_INSTALL):
        from statebook_backends.mysql.atomic import MysqlAtomicJournalStorage

    return MysqlAtomicJournalStorage(_own(options))


@hookimpl
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore:
    """Open the journal store of a database and namespace."""
    with driver(_INSTALL):
        from statebook_backends.mysql.journal import MysqlThreadJournalStore

    return MysqlThreadJournalStore(_own(options))


@hookimpl
def statebook_open_state(options: BackendOptions) -> AgentStateStore:
    """Open the state store of a database and namespace."""
    with driver(_INSTALL):
        from statebook_backends.mysql.state import MysqlAgentStateStore

    return MysqlAgentStateStore(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Delete all rows of a namespace. Tables stay, and so do other namespaces."""
    with driver(_INSTALL):
        from statebook_backends.mysql.namespaces import destroy_namespace

    destroy_namespace(_own(options))
    return True


@hookimpl
def statebook_open_medium(options: BackendOptions) -> Medium:
    """Show the rows of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.mysql.medium import MysqlMedium

    return MysqlMedium(_own(options))


@hookimpl
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures:
    """Show what earlier releases stored."""
    with driver(_INSTALL):
        from statebook_backends.mysql.format_fixtures import MysqlFixtures

    return MysqlFixtures(_own(options))


def _own(options: BackendOptions) -> MysqlOptions:
    if not isinstance(options, MysqlOptions):
        raise InvalidConfiguration(
            f"mysql:// takes MysqlOptions, not {type(options).__name__}", option="options", backend="mysql"
        )
    options.check()
    return options
