"""Mutants of export cursors, as an exporter that starts again meets them."""

from __future__ import annotations

from typing import Final

from statebook.keys import ThreadKey
from statebook.model import ExportCursor
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping


class _OpenedTooFar(BadJournal):
    """Opens a cursor behind the event that its earlier opener had read last, acknowledged or not."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        head = self.inner.head(key)
        if cursor.version == 1 or head is None or cursor.acked_seq >= head.last_seq:
            return cursor
        return self.inner.advance_cursor(cursor, cursor.acked_seq + 1)


OPENED_TOO_FAR: Final = Mutant(
    "cursor-opened-too-far", "what was delivered counts as acknowledged when a cursor is opened again",
    wrapping(journal=_OpenedTooFar),
)  # fmt: skip
