"""Core's journal over files: the same in all but one bound."""

from __future__ import annotations

from typing import Final

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.index_tree import Shape
from statebook.journal import ThreadJournalStore
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage

SHAPE: Final = Shape(small_tail_bytes_max=32 * 1024)
"""A commit takes some 6 µs for each KB of its head, a segment some 0.8 ms: a tail of small batches is to be shorter."""


def open_journal(options: JsonFileOptions) -> ThreadJournalStore:
    """Open the journals of a namespace.

    Args:
        options: Root, namespace, durability.

    Returns:
        The open store; close it.

    Raises:
        InvalidConfiguration: The root cannot be used as it is.
        UnsupportedFormat: The root is of another format version.
        BackendUnavailable: The file system refused for now.
    """
    return AtomicThreadJournalStore(JsonFileAtomicJournalStorage(options), shape=SHAPE)
