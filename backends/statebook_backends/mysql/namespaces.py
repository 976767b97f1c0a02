"""Deleting a namespace as a whole: for tests and operators."""

from __future__ import annotations

from typing import Final

from statebook.errors import JournalCorrupt
from statebook_backends.mysql.database import Database
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.transactions import Transaction

_DELETES: Final = (
    "DELETE FROM ~batch WHERE jid IN (SELECT jid FROM ~thread WHERE namespace = ?) LIMIT ?",
    "DELETE FROM ~cursor WHERE jid IN (SELECT jid FROM ~thread WHERE namespace = ?) LIMIT ?",
    "DELETE FROM ~journal WHERE namespace = ? LIMIT ?",
    "DELETE FROM ~thread WHERE namespace = ? LIMIT ?",
    "DELETE FROM ~chunk WHERE sid IN (SELECT sid FROM ~slot WHERE namespace = ?) LIMIT ?",
    "DELETE FROM ~slot WHERE namespace = ? LIMIT ?",
    "DELETE FROM ~atomic_blob WHERE namespace = ? LIMIT ?",
    "DELETE FROM ~atomic_head WHERE namespace = ? LIMIT ?",
)


def destroy_namespace(options: MysqlOptions) -> None:
    """Delete all rows of a namespace. Tables and other namespaces stay.

    Each table is emptied in a transaction of its own, those that others refer to last: calling again after a failure
    goes on where it stopped.

    Args:
        options: Database and namespace.

    Raises:
        BackendUnavailable: Some rows may be left; calling again is harmless.
        OutcomeUnknown: Calling again is harmless.
    """
    database = Database(options)
    try:
        for statement in _DELETES:
            _empty(database, statement)
    finally:
        database.close()


def _empty(database: Database, statement: str) -> None:
    def decide(tx: Transaction) -> None:
        tx.change_many(statement, database.namespace)

    database.run(decide, JournalCorrupt, None)
