"""Deleting a namespace as a whole: for tests and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statebook.errors import JournalCorrupt
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.options import SqliteOptions

if TYPE_CHECKING:
    from sqlite3 import Cursor

_DELETES: Final = (
    "DELETE FROM batch WHERE jid IN (SELECT jid FROM thread WHERE namespace = ?)",
    "DELETE FROM cursor WHERE jid IN (SELECT jid FROM thread WHERE namespace = ?)",
    "DELETE FROM journal WHERE namespace = ?",
    "DELETE FROM thread WHERE namespace = ?",
    "DELETE FROM chunk WHERE sid IN (SELECT sid FROM slot WHERE namespace = ?)",
    "DELETE FROM slot WHERE namespace = ?",
    "DELETE FROM atomic_blob WHERE namespace = ?",
    "DELETE FROM atomic_head WHERE namespace = ?",
)


def destroy_namespace(options: SqliteOptions) -> None:
    """Delete all rows of a namespace in one transaction. The file and other namespaces stay.

    Args:
        options: File and namespace.

    Raises:
        BackendUnavailable: Certainly nothing was deleted.
        OutcomeUnknown: Calling again is harmless.
    """
    session = Session(options)
    heads = session.database.heads

    def decide(cursor: Cursor) -> None:
        for statement in _DELETES:
            cursor.execute(statement, (options.namespace,))
        heads.clear()

    try:
        session.run(decide, JournalCorrupt, None)
    finally:
        session.close()
