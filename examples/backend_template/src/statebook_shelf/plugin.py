"""The hooks by which statebook finds, opens and cleans a shelf. Importing this module needs no driver."""

from __future__ import annotations

from statebook import AtomicJournalStorage, BackendOptions, StoreUrl, hookimpl
from statebook_shelf.options import ShelfOptions


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return ShelfOptions.from_url(url)


@hookimpl
def statebook_open_atomic(options: ShelfOptions) -> AtomicJournalStorage:
    """Open the storage; a backend with a client library imports it here, inside `statebook.plugins.driver(...)`."""
    from statebook_shelf.store import ShelfAtomicJournalStorage

    return ShelfAtomicJournalStorage(options)


@hookimpl
def statebook_destroy_namespace(options: ShelfOptions) -> bool:
    """Forget everything in the namespace: on a shelf it is one file."""
    from statebook_shelf.store import destroy

    destroy(options)
    return True
