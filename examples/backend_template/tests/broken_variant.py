"""The same backend with one mistake that tests of one caller never see: it compares first and locks later.

`statebook conformance broken_variant:open_store` refuses it at ATOM-1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from statebook_shelf import plugin
from statebook_shelf.options import ShelfOptions
from statebook_shelf.store import ShelfAtomicJournalStorage

from statebook import AtomicJournalStorage, CommitConflict, hookimpl
from statebook.plugins import Backend


class CheckThenAct(ShelfAtomicJournalStorage):
    """Compares the token in one step and writes in another."""

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Compare, then write over whatever came in between."""
        current = self.read_head(scope)
        found = None if current is None else current.token
        if found != expected:
            return super().commit(scope, expected, head, blobs)
        latest = self.read_head(scope)
        return super().commit(scope, None if latest is None else latest.token, head, blobs)


@hookimpl
def statebook_open_atomic(options: ShelfOptions) -> AtomicJournalStorage:
    """Open the broken storage."""
    return CheckThenAct(options)


def open_store(namespace: str) -> Backend:
    """Give the broken backend, as a target of the suite."""
    hooks = SimpleNamespace(
        statebook_open_atomic=statebook_open_atomic,
        statebook_destroy_namespace=plugin.statebook_destroy_namespace,
    )
    directory = Path(tempfile.gettempdir()) / "statebook-broken-shelf"
    return Backend("shelf", hooks, ShelfOptions(namespace=namespace, directory=directory))
