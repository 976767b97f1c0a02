"""Opening a database file: what may be opened, how, and with which settings (ATOM-7). The only place that connects.

SQLite before 3.51.3 can, very rarely, corrupt a write-ahead log that several processes reset at the same moment. All
checkpoints of a process therefore run on its one writer connection; a deployment with many writing processes should use
a newer SQLite, whose version is among the store's `server` facts.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from typing import Final
from urllib.parse import quote

import msgspec

from statebook.capabilities import Capabilities, Durability, Feature, Sharing
from statebook.errors import BackendUnavailable, InvalidConfiguration, JournalCorrupt, UnsupportedFormat
from statebook.model import FORMAT_VERSION
from statebook_backends.sqlite.errors import classify, is_busy, primary_code

APPLICATION_ID: Final = 0x53544244
"""`STBD`: how a statebook database is recognised."""

_BACKEND: Final = "sqlite"
_SQLITE_MIN: Final = (3, 38, 0)
_HEADER_BYTES: Final = 100
_STATEMENTS_KEPT: Final = 256
_RETRY_PAUSE_S: Final = 0.01
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "afpfs", "ncpfs", "ceph", "glusterfs"),
        *("lustre", "beegfs", "davfs", "webdav", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.davfs"),
    )
)


class FileSettings(msgspec.Struct, frozen=True):
    """How a file is opened.

    Attributes:
        path: The absolute path, links resolved.
        synchronous: `full`, `normal` or `extra`.
        busy_timeout_ms: How long SQLite waits for a lock.
    """

    path: str
    synchronous: str
    busy_timeout_ms: int


def capabilities(settings: FileSettings) -> Capabilities:
    """What a store with these settings declares (DUR)."""
    setting = settings.synchronous.upper()
    return Capabilities(
        backend=_BACKEND,
        durability=Durability.PROCESS if settings.synchronous == "normal" else Durability.HOST,
        durability_setting=f"synchronous={setting}, journal_mode=WAL",
        sharing=Sharing.HOST,
        features=frozenset({Feature.PURGE, Feature.GROUP_COMMIT, Feature.RECEIPTS_KEPT}),
        server=(("journal_mode", "wal"), ("sqlite", sqlite3.sqlite_version), ("synchronous", setting)),
    )


def resolve(path: str) -> str:
    """Check that a file may hold a database, without opening it.

    Args:
        path: As in the options; relative to the current directory.

    Returns:
        The absolute path, links resolved.

    Raises:
        InvalidConfiguration: The directory is missing, the place cannot be written, or it is on a network.
    """
    if sqlite3.sqlite_version_info < _SQLITE_MIN:
        raise _refused(
            f"this Python is linked with SQLite {sqlite3.sqlite_version}; statebook needs "
            f"{'.'.join(map(str, _SQLITE_MIN))} or newer"
        )
    real = os.path.realpath(path)
    directory = os.path.dirname(real)
    if not os.path.isdir(directory):
        raise _refused(f"the directory {directory!r} does not exist; create it, or name another file")
    if os.path.exists(real):
        if 0 < os.stat(real).st_size < _HEADER_BYTES:
            raise _refused(f"{real!r} is not an SQLite database; nothing was changed. Name another file")
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise _refused(f"{real!r} is no regular file; name another file")
        if not os.access(real, os.R_OK | os.W_OK):
            raise _refused(f"the file {real!r} cannot be read and written by this user; change its permissions")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _refused(f"the directory {directory!r} cannot be written, but SQLite keeps its log beside the database")
    kind = _file_system(directory)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise _refused(
            f"{real!r} is on a network file system ({kind}), where SQLite's locks do not hold; use a local disk, or "
            "another backend for several machines"
        )
    return real


def _file_system(directory: str) -> str | None:
    """The type of the file system that a directory is on, or None where the system does not say."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields = line.split(" ")
                if len(fields) > 6 and fields[2] == wanted:
                    return line.partition(" - ")[2].split(" ", 1)[0]
    except OSError:
        return None
    return None


def open_writer(settings: FileSettings, *, sleep: Callable[[float], None] = time.sleep) -> sqlite3.Connection:
    """Open the writer connection of a process, and make the database where there is none.

    Args:
        settings: How.
        sleep: How to wait for another process that makes the same database.

    Returns:
        The connection: implicit transactions off, write-ahead log on.

    Raises:
        InvalidConfiguration: The file holds something else; nothing in it was changed.
        UnsupportedFormat: It is a statebook database of another format; nothing in it was changed.
        BackendUnavailable: It stayed locked, or the file system refused.
    """
    if _size(settings.path + "-wal"):
        # A rollback journal beside the log is what a loss of power leaves while a database is made; only a connection
        # that may write can roll it back.
        with closing(_connect(settings, "rw" if _size(settings.path + "-journal") else "ro")) as viewer:
            _guarded(lambda: _is_new(viewer, settings.path), settings)
    connection = _connect(settings, "rwc")
    try:
        _guarded(lambda: _prepare(connection, settings, sleep), settings)
        if settings.synchronous != "normal":
            _flush_names(settings.path)
    except BaseException:
        connection.close()
        raise
    return connection


def _flush_names(path: str) -> None:
    """Make the names of database and log durable, which are both there now.

    SQLite does so with the first commit, and takes no notice where that fails.
    """
    if os.name == "nt":
        return
    try:
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise BackendUnavailable(
            f"the directory of the database cannot be flushed ({error.strerror or error}); check the disk, then open "
            "it again",
            key=path,
            backend=_BACKEND,
        ) from error


def open_reader(settings: FileSettings) -> sqlite3.Connection:
    """Open a connection that cannot write.

    Args:
        settings: How.

    Returns:
        The connection.

    Raises:
        BackendUnavailable: The file is gone, or the file system refused.
    """
    connection = _connect(settings, "rw")
    try:
        _guarded(lambda: connection.execute("PRAGMA query_only = 1"), settings)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(settings: FileSettings, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            f"file:{quote(settings.path)}?mode={mode}",
            uri=True,
            timeout=settings.busy_timeout_ms / 1_000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
        )
    except sqlite3.Error as error:
        raise classify(error, JournalCorrupt, settings.path) from error


def _guarded(step: Callable[[], object], settings: FileSettings) -> None:
    """Run one step of opening, and classify what goes wrong."""
    try:
        step()
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise _refused(
                f"{settings.path!r} is not an SQLite database, or its header is damaged; nothing was changed. "
                "Name another file, or restore a copy"
            ) from error
        raise classify(error, JournalCorrupt, settings.path) from error


def _prepare(connection: sqlite3.Connection, settings: FileSettings, sleep: Callable[[float], None]) -> None:
    new = _is_new(connection, settings.path)
    _set_journal_mode(connection, settings, sleep)
    execute = connection.execute
    execute(f"PRAGMA synchronous = {settings.synchronous.upper()}")
    execute("PRAGMA foreign_keys = OFF")
    execute("PRAGMA temp_store = MEMORY")
    execute("PRAGMA cache_size = -16000")
    execute("PRAGMA journal_size_limit = 67108864")
    if new:
        _create(connection, settings.path)


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    """Tell whether the database is empty; refuse one that is not statebook's, or of another format (FORMAT-1)."""
    found = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), "
        "(SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    application, version, tables = found
    if application == 0 and version == 0 and tables == 0:
        return True
    if application != APPLICATION_ID:
        raise _refused(
            f"{path!r} is a database of another application; nothing was changed. Name a file of statebook's own"
        )
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{path!r} has format {version}; this release reads format {FORMAT_VERSION}. Use a release that knows it; "
            "nothing was changed",
            what="database",
            expected=str(FORMAT_VERSION),
            found=str(version),
            backend=_BACKEND,
        )
    return False


def _set_journal_mode(connection: sqlite3.Connection, settings: FileSettings, sleep: Callable[[float], None]) -> None:
    """Switch to the write-ahead log; several processes may do so at once, and SQLite does not wait for it by itself."""
    mode: str | None = None
    for attempt in range(int(settings.busy_timeout_ms / 1_000 / _RETRY_PAUSE_S) + 10):
        if attempt:
            sleep(_RETRY_PAUSE_S)
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
    if mode is None:
        raise BackendUnavailable(
            "the database stayed locked while it was opened; try again", key=settings.path, backend=_BACKEND
        )
    if mode != "wal":
        raise _refused(
            f"SQLite cannot keep a write-ahead log for {settings.path!r} (journal_mode={mode}); use a local disk"
        )


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Make tables and format in one transaction; harmless where another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection, path):
            for statement in _schema():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _schema() -> list[str]:
    statements: list[str] = []
    pending = ""
    for line in (
        files("statebook_backends.sqlite").joinpath("schema.sql").read_text(encoding="utf-8").splitlines(keepends=True)
    ):
        pending += line
        if ";" in line and sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _refused(message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, option="path", backend=_BACKEND)
