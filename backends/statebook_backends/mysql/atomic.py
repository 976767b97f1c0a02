"""AtomicJournalStorage on MySQL and MariaDB: heads and blobs as rows, one transaction a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.errors import JournalCorrupt, LimitExceeded
from statebook.ids import new_nonce
from statebook.model import check_page
from statebook_backends.mysql.database import Database
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import Row
from statebook_backends.mysql.transactions import Transaction

_HEAD: Final = "SELECT data, token FROM ~atomic_head WHERE namespace = ? AND scope = ?"
_LOCK: Final = "SELECT token FROM ~atomic_head WHERE namespace = ? AND scope = ? FOR UPDATE"
_ADD_HEAD: Final = "INSERT INTO ~atomic_head (namespace, scope, token, data) VALUES (?, ?, ?, ?)"
_SET_HEAD: Final = "UPDATE ~atomic_head SET token = ?, data = ? WHERE namespace = ? AND scope = ?"
_DELETE_HEAD: Final = "DELETE FROM ~atomic_head WHERE namespace = ? AND scope = ?"
_SCOPES: Final = "SELECT scope FROM ~atomic_head WHERE namespace = ? AND scope > ? AND scope < ? ORDER BY scope LIMIT ?"
_BLOB: Final = "SELECT data FROM ~atomic_blob WHERE namespace = ? AND scope = ? AND name = ?"
_ADD_BLOB: Final = "INSERT INTO ~atomic_blob (namespace, scope, name, data) VALUES (?, ?, ?, ?)"
_DELETE_BLOBS: Final = "DELETE FROM ~atomic_blob WHERE namespace = ? AND scope = ? AND name IN (?)"
_BLOBS: Final = "SELECT name FROM ~atomic_blob WHERE namespace = ? AND scope = ? AND name > ? ORDER BY name LIMIT ?"
_BEHIND_ALL: Final = b"\x7f"
_NAMES_AT_ONCE: Final = 1_000
_HEADER_ROOM: Final = 131_072


class MysqlAtomicJournalStorage(AtomicJournalStorage):
    """Heads and blobs in two tables; a commit judges the token and writes in one transaction (ATOM-1, ATOM-3)."""

    def __init__(self, options: MysqlOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the storage.

        Args:
            options: What to open.
            new_nonce: Where tokens come from.

        Raises:
            InvalidConfiguration: The server, the user or the tables cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The tables are of another format.
            BackendUnavailable: The server does not answer.
        """
        self._database = Database(options)
        self._namespace = self._database.namespace
        self._new_nonce = new_nonce
        declared = self._database.capabilities
        limits = declared.limits
        # Core keeps a list in one record, and puts a header before each.
        self._record_max = limits.batch_bytes_max
        self._capabilities = msgspec.structs.replace(
            declared,
            limits=msgspec.structs.replace(
                limits,
                value_bytes_max=min(limits.value_bytes_max, self._record_max - _HEADER_ROOM),
                batch_bytes_max=self._record_max - _HEADER_ROOM,
                list_bytes_max=min(limits.list_bytes_max, self._record_max - _HEADER_ROOM),
            ),
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read_head(self, scope: str) -> HeadRecord | None:
        rows = self._database.ask(JournalCorrupt, scope, _HEAD, self._namespace, scope.encode())
        if not rows:
            return None
        data, token = cast("tuple[bytes, str]", rows[0])
        return HeadRecord(data, token)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        new = {} if blobs is None else {name: bytes(content) for name, content in blobs.items()}
        data = bytes(head)
        for record in (data, *new.values()):
            if len(record) > self._record_max:
                raise LimitExceeded(
                    f"a record may have {self._record_max} bytes, but has {len(record)}; raise max_allowed_packet",
                    limit="batch_bytes_max",
                    maximum=self._record_max,
                    actual=len(record),
                    key=scope,
                    backend="mysql",
                )
        place = (self._namespace, scope.encode())

        def decide(tx: Transaction) -> str | CommitConflict:
            rows = tx.ask(_LOCK, *place)
            if (rows[0][0] if rows else None) != expected:
                return COMMIT_CONFLICT
            missing = [name for name, content in new.items() if self._is_missing(tx, scope, name, content)]
            for name in missing:
                tx.change(_ADD_BLOB, *place, name.encode(), new[name])
            token = self._new_nonce()
            if rows:
                tx.change(_SET_HEAD, token, data, *place)
            else:
                tx.change(_ADD_HEAD, *place, token, data)
            return token

        return self._database.run(decide, JournalCorrupt, scope)

    def _is_missing(self, tx: Transaction, scope: str, name: str, content: bytes) -> bool:
        """Tell whether a blob is not there yet; refuse one that is there with other content (ATOM-4)."""
        rows = tx.ask(_BLOB, self._namespace, scope.encode(), name.encode())
        if rows and rows[0][0] != content:
            raise JournalCorrupt(
                f"blob {name!r} is there with other content; blobs are never replaced",
                what="blob",
                key=scope,
                backend="mysql",
            )
        return not rows

    def read_blob(self, scope: str, name: str) -> bytes | None:
        rows = self._database.ask(JournalCorrupt, scope, _BLOB, self._namespace, scope.encode(), name.encode())
        return cast(bytes, rows[0][0]) if rows else None

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        rows = self._database.ask(
            JournalCorrupt, scope, _BLOBS, self._namespace, scope.encode(), (after or "").encode(), limit + 1
        )
        return _page(rows, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        given = [name.encode() for name in names]

        def decide(tx: Transaction) -> None:
            for start in range(0, len(given), _NAMES_AT_ONCE):
                part = tuple(given[start : start + _NAMES_AT_ONCE])
                tx.change(_DELETE_BLOBS, self._namespace, scope.encode(), part)

        self._database.run(decide, JournalCorrupt, scope)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        # `0` follows `/`, so the names that start with `x/` are those between `x/` and `x0`.
        end = (prefix[:-1] + "0").encode() if prefix else _BEHIND_ALL
        start = max(prefix, after or "").encode()
        rows = self._database.ask(JournalCorrupt, prefix, _SCOPES, self._namespace, start, end, limit + 1)
        return _page(rows, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        def decide(tx: Transaction) -> bool:
            rows = tx.ask(_LOCK, self._namespace, scope.encode())
            if not rows or rows[0][0] != expected:
                return False
            tx.change(_DELETE_HEAD, self._namespace, scope.encode())
            return True

        return self._database.run(decide, JournalCorrupt, scope)

    def close(self) -> None:
        self._database.close()


def _page(rows: Sequence[Row], limit: int) -> NamePage:
    names = [cast(bytes, row[0]).decode(errors="replace") for row in rows[:limit]]
    return NamePage(tuple(names), len(rows) > limit)
