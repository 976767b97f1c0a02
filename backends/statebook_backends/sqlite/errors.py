"""What each error of sqlite3 means: not applied, unknown, or damage. Nothing else in this backend decides that."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Final, TypeAlias

from statebook.errors import BackendUnavailable, DataError, LimitExceeded, StatebookError

DriverError: TypeAlias = sqlite3.Error
"""What the driver raises."""

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_DAMAGE: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_CONSTRAINT}
)
_HARMLESS_AT_COMMIT: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL})
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "the disk or the database is full; make room",
    sqlite3.SQLITE_READONLY: "the database cannot be written; check its permissions and its file system",
    sqlite3.SQLITE_IOERR: "the file system reported an error; check the disk",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened; check its directory, permissions and open files",
    sqlite3.SQLITE_PERM: "access to the database file is denied; check its permissions",
    sqlite3.SQLITE_NOMEM: "memory ran out",
}


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code of an error; -1 where the driver gives none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether another connection stood in the way."""
    return primary_code(error) in _BUSY


def is_harmless_at_commit(error: sqlite3.Error) -> bool:
    """Tell whether an error of COMMIT proves that nothing was committed (ERR-2).

    A full disk ends the write of the log before its commit record is whole. Any other error, that of a sync before all,
    may leave a whole commit record behind, which a recovery would take up.
    """
    return primary_code(error) in _HARMLESS_AT_COMMIT


def classify(error: sqlite3.Error, damage: type[DataError], key: str | None) -> StatebookError:
    """Turn an error met before COMMIT, whose transaction was rolled back, into ours (ERR-1, ERR-2).

    Args:
        error: What the driver raised.
        damage: The class for damage: `JournalCorrupt` or `StateCorrupt`.
        key: What the call was about.

    Returns:
        The error, with the driver's as its cause.
    """
    made = _made(error, damage, key)
    made.__cause__ = error
    return made


def _made(error: sqlite3.Error, damage: type[DataError], key: str | None) -> StatebookError:
    code = primary_code(error)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    text = str(error)
    if code in _DAMAGE or (code == sqlite3.SQLITE_ERROR and text.startswith("no such")) or _undecodable(code, text):
        return damage(
            f"the database is damaged or was changed by hand ({name}); nothing was changed. Restore a copy, or salvage",
            what="database",
            expected="rows as statebook wrote them",
            found=name,
            key=key,
            backend="sqlite",
        )
    if code == sqlite3.SQLITE_TOOBIG:
        return LimitExceeded(
            "the value is larger than this SQLite was built for", limit="value_bytes_max", key=key, backend="sqlite"
        )
    if code in _BUSY:
        remedy = "another process held the database for longer than busy_timeout_ms; try again, or wait longer"
    else:
        remedy = _REMEDIES.get(code, "SQLite refused the call")
    return BackendUnavailable(f"{remedy} ({name}); nothing was applied", key=key, backend="sqlite")


def _undecodable(code: int, text: str) -> bool:
    return code == -1 and text.startswith("Could not decode")


class driver_errors:  # noqa: N801 - a context manager, named as it reads in a with statement
    """Classify every error of the driver inside a block in which nothing is committed."""

    __slots__ = ("_damage", "_key")

    def __init__(self, damage: type[DataError], key: str | None = None) -> None:
        self._damage = damage
        self._key = key

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ours in the place of the driver's (ERR-1)."""
        if isinstance(error, sqlite3.Error):
            raise classify(error, self._damage, self._key) from error
