"""The hooks of `redis://`, `rediss://`, `redis+sentinel://` and `redis+cluster://`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook.plugins import driver
from statebook_backends.redis.options import RedisOptions, options_of

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.format_fixtures import FormatFixtures
    from statebook.journal import ThreadJournalStore
    from statebook.medium import Medium
    from statebook.state import AgentStateStore

_INSTALL = 'python -m pip install "statebook[redis]"'


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into the options of its scheme."""
    return options_of(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.redis.atomic import RedisAtomicJournalStorage

    return RedisAtomicJournalStorage(_own(options))


@hookimpl
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore:
    """Open the journal store of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.redis.journal import RedisThreadJournalStore

    return RedisThreadJournalStore(_own(options))


@hookimpl
def statebook_open_state(options: BackendOptions) -> AgentStateStore:
    """Open the state store of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.redis.state import RedisAgentStateStore

    return RedisAgentStateStore(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Delete all keys of a namespace. Other namespaces, and keys that are not statebook's, stay."""
    with driver(_INSTALL):
        from statebook_backends.redis.namespaces import destroy_namespace

    destroy_namespace(_own(options))
    return True


@hookimpl
def statebook_open_medium(options: BackendOptions) -> Medium:
    """Show the keys of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.redis.medium import RedisMedium

    return RedisMedium(_own(options))


@hookimpl
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures:
    """Show what earlier releases stored."""
    with driver(_INSTALL):
        from statebook_backends.redis.format_fixtures import RedisFixtures

    return RedisFixtures(_own(options))


def _own(options: BackendOptions) -> RedisOptions:
    if not isinstance(options, RedisOptions):
        raise InvalidConfiguration(
            f"redis:// takes RedisOptions, not {type(options).__name__}", option="options", backend="redis"
        )
    return options
