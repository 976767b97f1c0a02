"""The tables: made once under a lock, recognised by their version, checked for their engine (ATOM-7, FORMAT-1)."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from statebook.errors import BackendUnavailable, InvalidConfiguration, StatebookError, UnsupportedFormat
from statebook.model import FORMAT_VERSION
from statebook_backends.mysql.errors import DUPLICATE, NO_TABLE, Failure, classify_opening
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import Sql
from statebook_backends.mysql.store import Link, where

SCHEMA_VERSION: Final = 1
"""The version of the tables' shape."""

_TABLES: Final = ("atomic_blob", "atomic_head", "batch", "chunk", "cursor", "journal", "meta", "slot", "thread")
_FILE: Final = "schema.sql"
_META: Final = "SELECT name, value FROM ~meta"
_LOCK: Final = "SELECT GET_LOCK(?, ?)"
_UNLOCK: Final = "SELECT RELEASE_LOCK(?)"
_LOCK_WAIT_S: Final = 60
_ENGINES: Final = (
    "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN (?)"
)
NO_RIGHT: Final = frozenset({1044, 1142, 1227})
"""The user may not make tables."""


def prepare(link: Link, sql: Sql, options: MysqlOptions) -> None:
    """See that the tables are there and are ours; make them where they are not.

    Every step may be run again, and several processes may come at once: one makes the tables, the others wait.

    Args:
        link: A session.
        sql: Renders statements.
        options: Whether tables may be made.

    Raises:
        InvalidConfiguration: Tables are missing and may not be made, or another engine holds them; names the remedy.
        UnsupportedFormat: They are of another format or of a newer release; nothing was changed.
        BackendUnavailable: The server refused, or another process held the lock for too long.
    """
    try:
        if not _is_current(link, sql):
            if not options.create:
                raise _refused(
                    f"the tables {options.table_prefix}* are missing or older than schema {SCHEMA_VERSION}, and "
                    f"create=false; run {_path()} against the database"
                    + (f", with sb_ replaced by {options.table_prefix}" if options.table_prefix != "sb_" else "")
                )
            _migrate(link, sql, options)
        _check_engines(link, sql, options)
    except Failure as failure:
        raise classify_opening(failure, where(options)) from failure.__cause__


def _is_current(link: Link, sql: Sql) -> bool:
    """Tell whether the tables are there, whole and of this version; refuse newer ones."""
    try:
        rows = link.run((sql(_META),))[0].rows
    except Failure as failure:
        if failure.code == NO_TABLE:
            return False
        raise
    meta = {str(name): str(value) for name, value in rows}
    written = meta.get("format")
    if written is not None and written != str(FORMAT_VERSION):
        raise _unsupported("format", str(FORMAT_VERSION), written)
    version = meta.get("schema")
    if version is None or written is None:
        return False
    if not version.isdecimal() or int(version) > SCHEMA_VERSION:
        raise _unsupported("schema", str(SCHEMA_VERSION), version)
    return int(version) == SCHEMA_VERSION


def _migrate(link: Link, sql: Sql, options: MysqlOptions) -> None:
    """Make the tables under a lock that ends with the session."""
    about = f"{options.database}.{options.table_prefix}"
    name = f"statebook:{hashlib.sha256(about.encode()).hexdigest()[:40]}"
    wait_s = min(_LOCK_WAIT_S, max(1, int(options.read_timeout_s) - 1))
    if link.run((sql(_LOCK, name, wait_s),))[0].rows[0][0] != 1:
        raise BackendUnavailable(
            "another process has been making the tables for too long; try again", key=about, backend="mysql"
        )
    try:
        if not _is_current(link, sql):
            for statement in statements(options.table_prefix):
                link.run((statement,))
    except Failure as failure:
        if failure.code in NO_RIGHT:
            raise _refused(
                f"this user may not make the tables (error {failure.code}); grant it CREATE on {options.database}, or "
                f"run {_path()} as another user and open with create=false"
            ) from failure.__cause__
        if failure.code != DUPLICATE:
            raise
    finally:
        _unlock(link, sql, name)


def _unlock(link: Link, sql: Sql, name: str) -> None:
    try:
        link.run((sql(_UNLOCK, name),))
    except Failure:
        # The session is lost, and the lock with it.
        return


def _check_engines(link: Link, sql: Sql, options: MysqlOptions) -> None:
    names = tuple(f"{options.table_prefix}{table}" for table in _TABLES)
    for name, engine in engines_of(link, sql, names):
        if engine is None:
            raise _refused(f"the table {name} is missing although its neighbours are there; run {_path()}")
        if engine.lower() != "innodb":
            raise _refused(
                f"the table {name} is held by {engine}, which has no transactions; run ALTER TABLE {name} ENGINE=InnoDB"
            )


def engines_of(link: Link, sql: Sql, names: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Ask which tables are there, and which engine holds them.

    Args:
        link: A session.
        sql: Renders statements.
        names: The whole names of tables.

    Returns:
        Each name with its engine, or with None where the table is missing.

    Raises:
        Failure: The server did not answer.
    """
    rows = link.run((sql(_ENGINES, names),))[0].rows
    found = {str(name).lower(): str(engine) for name, engine in rows}
    return tuple((name, found.get(name.lower())) for name in names)


def statements(prefix: str, file: str = _FILE) -> tuple[bytes, ...]:
    """The statements of `schema.sql`, or of a file beside it, for a prefix; each may be run again.

    Args:
        prefix: The start of all table names.
        file: The file's name.

    Returns:
        The statements.
    """
    text = files("statebook_backends.mysql").joinpath(file).read_text(encoding="utf-8")
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    plain = "\n".join(line for line in lines if line).replace("sb_", prefix)
    return tuple(part.strip().encode("ascii") for part in plain.split(";") if part.strip())


def _path() -> str:
    return f"statebook_backends/mysql/{_FILE}"


def _refused(message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, option="create", backend="mysql")


def _unsupported(what: str, expected: str, found: str) -> StatebookError:
    return UnsupportedFormat(
        f"the tables have {what} {found}; this release reads {what} {expected}. Use a release that knows it; nothing "
        "was changed",
        what="database",
        expected=expected,
        found=found,
        backend="mysql",
    )
