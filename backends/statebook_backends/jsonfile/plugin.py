"""The hooks of `file://`. The journal and the state store are core's, over the atomic storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook_backends.jsonfile.options import JsonFileOptions

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.format_fixtures import FormatFixtures
    from statebook.journal import ThreadJournalStore
    from statebook.medium import Medium


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return JsonFileOptions.from_url(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage in a directory, which is made where it is not there."""
    from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage

    return JsonFileAtomicJournalStorage(_own(options))


@hookimpl
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore:
    """Open core's journal over the atomic storage, with bounds that suit files."""
    from statebook_backends.jsonfile.journal import open_journal

    return open_journal(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Remove the directory of a namespace; what is not statebook's in it stays and is an error."""
    from statebook_backends.jsonfile.destroy import destroy_namespace

    destroy_namespace(_own(options))
    return True


@hookimpl
def statebook_open_medium(options: BackendOptions) -> Medium:
    """Show the files of a namespace."""
    from statebook_backends.jsonfile.medium import JsonFileMedium

    return JsonFileMedium(_own(options))


@hookimpl
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures:
    """Show what earlier releases stored."""
    from statebook.format_fixtures import MediumFixtures
    from statebook_backends.jsonfile.medium import JsonFileMedium

    return MediumFixtures("statebook_backends.jsonfile", JsonFileMedium(_own(options)))


def _own(options: BackendOptions) -> JsonFileOptions:
    if not isinstance(options, JsonFileOptions):
        raise InvalidConfiguration(
            f"file:// takes JsonFileOptions, not {type(options).__name__}", option="options", backend="file"
        )
    return options
