"""AtomicJournalStorage on SQLite: heads and blobs as rows, one transaction a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.errors import JournalCorrupt
from statebook.ids import new_nonce
from statebook.model import check_page
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.options import SqliteOptions

if TYPE_CHECKING:
    from sqlite3 import Cursor

_HEAD: Final = "SELECT data, token FROM atomic_head WHERE namespace = ? AND scope = ?"
_TOKEN: Final = "SELECT token FROM atomic_head WHERE namespace = ? AND scope = ?"  # noqa: S105 - a column, no secret
_SET_HEAD: Final = (
    "INSERT INTO atomic_head (namespace, scope, token, data) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (namespace, scope) DO UPDATE SET token = excluded.token, data = excluded.data"
)
_DELETE_HEAD: Final = "DELETE FROM atomic_head WHERE namespace = ? AND scope = ? AND token = ?"
_SCOPES: Final = "SELECT scope FROM atomic_head WHERE namespace = ? AND scope > ? AND scope < ? ORDER BY scope LIMIT ?"
_BLOB: Final = "SELECT data FROM atomic_blob WHERE namespace = ? AND scope = ? AND name = ?"
_ADD_BLOB: Final = "INSERT INTO atomic_blob (namespace, scope, name, data) VALUES (?, ?, ?, ?)"
_DELETE_BLOB: Final = "DELETE FROM atomic_blob WHERE namespace = ? AND scope = ? AND name = ?"
_BLOBS: Final = "SELECT name FROM atomic_blob WHERE namespace = ? AND scope = ? AND name > ? ORDER BY name LIMIT ?"
_BEHIND_ALL: Final = "\x7f"


class SqliteAtomicJournalStorage(AtomicJournalStorage):
    """Heads and blobs in two tables; a commit judges the token and writes in one transaction (ATOM-1, ATOM-3)."""

    def __init__(self, options: SqliteOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the storage.

        Args:
            options: What to open.
            new_nonce: Where tokens come from.

        Raises:
            InvalidConfiguration: The place or the file cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The file is of another format.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        self._session = Session(options)
        self._namespace = options.namespace
        self._new_nonce = new_nonce
        self._limits = self._session.capabilities.limits

    @property
    def capabilities(self) -> Capabilities:
        return self._session.capabilities

    def read_head(self, scope: str) -> HeadRecord | None:
        with self._session.database.readers.reading(JournalCorrupt, scope) as cursor:
            row = cursor.execute(_HEAD, (self._namespace, scope)).fetchone()
        return None if row is None else HeadRecord(*row)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        new = {} if blobs is None else {name: bytes(content) for name, content in blobs.items()}
        data = bytes(head)
        for record in (data, *new.values()):
            self._limits.check("list_bytes_max", len(record), scope)

        def decide(cursor: Cursor) -> str | CommitConflict:
            row = cursor.execute(_TOKEN, (self._namespace, scope)).fetchone()
            if (None if row is None else row[0]) != expected:
                return COMMIT_CONFLICT
            missing = [name for name, content in new.items() if self._is_missing(cursor, scope, name, content)]
            for name in missing:
                cursor.execute(_ADD_BLOB, (self._namespace, scope, name, new[name]))
            token = self._new_nonce()
            cursor.execute(_SET_HEAD, (self._namespace, scope, token, data))
            return token

        size = len(data) + sum(map(len, new.values()))
        return self._session.run(decide, JournalCorrupt, scope, size)

    def _is_missing(self, cursor: Cursor, scope: str, name: str, content: bytes) -> bool:
        """Tell whether a blob is not there yet; refuse one that is there with other content (ATOM-4)."""
        row = cursor.execute(_BLOB, (self._namespace, scope, name)).fetchone()
        if row is not None and row[0] != content:
            raise JournalCorrupt(
                f"blob {name!r} is there with other content; blobs are never replaced",
                what="blob",
                key=scope,
                backend="sqlite",
            )
        return row is None

    def read_blob(self, scope: str, name: str) -> bytes | None:
        with self._session.database.readers.reading(JournalCorrupt, scope) as cursor:
            row = cursor.execute(_BLOB, (self._namespace, scope, name)).fetchone()
        return None if row is None else bytes(row[0])

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        with self._session.database.readers.reading(JournalCorrupt, scope) as cursor:
            rows = cursor.execute(_BLOBS, (self._namespace, scope, after or "", limit + 1)).fetchall()
        return _page(rows, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        rows = [(self._namespace, scope, name) for name in names]

        def decide(cursor: Cursor) -> None:
            cursor.executemany(_DELETE_BLOB, rows)

        self._session.run(decide, JournalCorrupt, scope)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        # `0` follows `/`, so the names that start with `x/` are those between `x/` and `x0`.
        end = prefix[:-1] + "0" if prefix else _BEHIND_ALL
        start = max(prefix, after or "")
        with self._session.database.readers.reading(JournalCorrupt, prefix) as cursor:
            rows = cursor.execute(_SCOPES, (self._namespace, start, end, limit + 1)).fetchall()
        return _page(rows, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        def decide(cursor: Cursor) -> bool:
            return cursor.execute(_DELETE_HEAD, (self._namespace, scope, expected)).rowcount == 1

        return self._session.run(decide, JournalCorrupt, scope)

    def close(self) -> None:
        self._session.close()


def _page(rows: Sequence[tuple[str]], limit: int) -> NamePage:
    return NamePage(tuple([row[0] for row in rows[:limit]]), len(rows) > limit)
