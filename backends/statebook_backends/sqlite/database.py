"""One database file in one process: its writer, its readers and what is remembered of its journals.

All stores of a process that open the same file with the same settings share one `Database`. That needs one registry a
process, which is the only state of this backend that lives in a module.

A fork must not carry connections over: SQLite keeps a file's locks in the memory of the process, and a child that
believes it holds its parent's locks destroys data, even through connections of its own. So all connections are closed
before a fork, and parent and child open new ones at their next call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from statebook.capabilities import Capabilities
from statebook.errors import BackendUnavailable, DataError, StoreClosed
from statebook_backends.sqlite.heads import HeadCache
from statebook_backends.sqlite.options import SqliteOptions
from statebook_backends.sqlite.readers import ReaderPool
from statebook_backends.sqlite.store import FileSettings, capabilities, open_reader, open_writer, resolve
from statebook_backends.sqlite.writer import Call, Writer

if TYPE_CHECKING:
    from sqlite3 import Connection, Cursor

T = TypeVar("T")

_PATIENCE_EXTRA_S: Final = 60.0
_PAUSE_WAIT_S: Final = 10.0


class Database:
    """One open file.

    Attributes:
        capabilities: What its stores declare.
        heads: What is remembered of journals; used by operations of the writer only.
        writer: Runs everything that writes.
        readers: Runs everything that reads.
    """

    def __init__(self, settings: FileSettings) -> None:
        """Open the file, and make it where there is none.

        Args:
            settings: How.

        Raises:
            InvalidConfiguration: The file holds something else.
            UnsupportedFormat: It is of another format.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        patience_s = settings.busy_timeout_ms / 1_000 + _PATIENCE_EXTRA_S
        self.capabilities: Capabilities = capabilities(settings)
        self.heads = HeadCache()
        self._settings = settings
        self._paused = (False, False)
        self._closed = False
        self._forked_in_use = False
        self._file: tuple[FileSettings, int, int] | None = None
        self.writer = Writer(self._open_writer, self.heads.clear, patience_s)
        self.readers = ReaderPool(self._open_reader, patience_s)
        self.writer.connect()

    def _open_writer(self) -> Connection:
        self._check_usable()
        connection = open_writer(self._settings)
        self._file = _identity(self._settings)
        return connection

    def _open_reader(self) -> Connection:
        self._check_usable()
        return open_reader(self._settings)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed("the store was closed while the call waited; nothing was applied", backend="sqlite")
        if self._file is not None and self._file != _identity(self._settings):
            raise BackendUnavailable(
                "the database file was moved, removed or replaced while it was open; close the store and open it anew",
                key=self._settings.path,
                backend="sqlite",
            )
        if self._forked_in_use:
            raise BackendUnavailable(
                "the process was forked while calls held the database, so the child cannot use it; fork at a quiet "
                "moment, or start a new process instead",
                key=self._settings.path,
                backend="sqlite",
            )

    def close(self) -> None:
        """Close all connections, behind the calls that are under way; those that still wait are refused."""
        self._closed = True
        self.pause()
        self.resume()

    def pause(self) -> None:
        """Wait for calls under way, let none begin, and close all connections."""
        self._paused = (self.writer.pause(_PAUSE_WAIT_S), self.readers.pause(_PAUSE_WAIT_S))

    def resume(self) -> None:
        """End a pause; connections are opened again when they are needed."""
        self.writer.resume(paused=self._paused[0])
        self.readers.resume()

    def resume_in_child(self) -> tuple[object, ...]:
        """End a pause in the child of a fork.

        Returns:
            The parent's connections that could not be closed in time: to be kept, and never to be touched.
        """
        left: tuple[object, ...] = ()
        if not all(self._paused):
            self._forked_in_use = True
            left = (*self.writer.abandon(), *self.readers.abandon())
        self.writer.resume_in_child()
        self.readers.resume_in_child()
        return left


class _Entry:
    __slots__ = ("database", "users")

    def __init__(self, database: Database) -> None:
        self.database = database
        self.users = 0


class _Registry:
    """The open databases of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: dict[tuple[FileSettings, int, int], _Entry] = {}
        self._untouchable: list[object] = []
        self._hooked = False

    def enter(self, settings: FileSettings) -> Database:
        """Share the database of a file, or open it."""
        with self._lock:
            self._hook()
            entry = self._entries.get(_identity(settings))
            if entry is None:
                entry = _Entry(Database(settings))
                self._entries[_identity(settings)] = entry
            entry.users += 1
            return entry.database

    def leave(self, database: Database) -> None:
        """Let go of a database; the last user closes it."""
        with self._lock:
            for identity, entry in self._entries.items():
                if entry.database is database:
                    entry.users -= 1
                    if entry.users == 0:
                        del self._entries[identity]
                        database.close()
                    return

    def _hook(self) -> None:
        if not self._hooked and hasattr(os, "register_at_fork"):
            self._hooked = True
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
            )

    def _before_fork(self) -> None:
        self._lock.acquire()
        for entry in self._entries.values():
            entry.database.pause()

    def _after_in_parent(self) -> None:
        for entry in self._entries.values():
            entry.database.resume()
        self._lock.release()

    def _after_in_child(self) -> None:
        for entry in self._entries.values():
            self._untouchable.extend(entry.database.resume_in_child())
        self._lock = Lock()


def _identity(settings: FileSettings) -> tuple[FileSettings, int, int]:
    """What tells one open file from another: a file that was moved away is not the one in its place."""
    try:
        found = os.stat(settings.path)
    except FileNotFoundError:
        return settings, -1, -1
    return settings, found.st_dev, found.st_ino


_REGISTRY: Final = _Registry()


class Session:
    """One store's hold on a database: its namespace, and whether it is closed.

    Attributes:
        namespace: The namespace of its rows.
        capabilities: What the store declares.
    """

    __slots__ = ("_database", "_lock", "capabilities", "namespace")

    def __init__(self, options: SqliteOptions) -> None:
        """Open, or share what this process has open.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The place or the file cannot be used; nothing was changed.
            UnsupportedFormat: The file is of another format.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        settings = FileSettings(resolve(options.path), options.synchronous, options.busy_timeout_ms)
        database = _REGISTRY.enter(settings)
        self.namespace = options.namespace
        self.capabilities = database.capabilities
        self._lock = Lock()
        self._database: Database | None = database

    @property
    def database(self) -> Database:
        """The open database.

        Raises:
            StoreClosed: The store is closed (ERR-5).
        """
        database = self._database
        if database is None:
            raise StoreClosed("the store is closed; open a new one", backend="sqlite")
        return database

    def run(self, function: Callable[[Cursor], T], damage: type[DataError], key: str | None, size: int = 0) -> T:
        """Judge and write in one transaction under the write lock, and commit.

        Args:
            function: Decides first and writes then; raises what it refuses. May be called again after a rollback.
            damage: The class for damage.
            key: What it is about, for errors.
            size: How many bytes it writes, roughly.

        Returns:
            What the function answered, committed.

        Raises:
            StatebookError: What the function raised, nothing written; or why it was not, or perhaps, committed (ERR-2).
        """
        call = Call(function, damage, key, size)
        self.database.writer.run(call)
        return call.result

    def close(self) -> None:
        """Let go of the database; a second call is harmless (ERR-5)."""
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            _REGISTRY.leave(database)
