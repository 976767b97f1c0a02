"""A bounded pool of connections that only read. A call borrows one; threads own none, so that none leaks with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TYPE_CHECKING, Final

from statebook.errors import DataError, Overloaded, StatebookError
from statebook_backends.sqlite.errors import DriverError, classify

if TYPE_CHECKING:
    from sqlite3 import Connection, Cursor

READERS_MAX: Final = 64
"""How many calls of a process read one file at once."""

READERS_KEPT: Final = 16
"""How many idle connections are kept."""


class ReaderPool:
    """Connections that read, each used by one call at a time. Safe from many threads."""

    def __init__(self, connect: Callable[[], Connection], patience_s: float) -> None:
        """Make an empty pool.

        Args:
            connect: Opens a connection.
            patience_s: How long a call waits for a connection at most.
        """
        self._connect = connect
        self._patience_s = patience_s
        self._idle: list[Connection] = []
        self._opened = 0
        self._waiting = 0
        self._paused = False
        self._changed = Condition()

    @property
    def opened(self) -> int:
        """How many connections are open."""
        return self._opened

    @contextmanager
    def reading(self, damage: type[DataError], key: str | None = None) -> Iterator[Cursor]:
        """Read inside one snapshot, which is no older than this call (ATOM-5, CLAIM-7).

        Args:
            damage: The class for damage.
            key: What is read, for errors.

        Yields:
            A cursor; whatever it reads is of one commit.

        Raises:
            BackendUnavailable: The file system refused.
            Overloaded: Too many calls read at once.
        """
        connection = self._take()
        sound = False
        try:
            cursor = connection.cursor()
            try:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
                sound = True
            except StatebookError:
                cursor.close()
                connection.execute("ROLLBACK")
                sound = True
                raise
        except DriverError as error:
            raise classify(error, damage, key) from error
        finally:
            self._give(connection, sound=sound)

    # ------------------------------------------------------------------------------------------------- connections

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(self._can_take, timeout=self._patience_s):
                    raise Overloaded(
                        f"{READERS_MAX} calls of this process read the database already; try again", backend="sqlite"
                    )
                if self._idle:
                    return self._idle.pop()
                self._opened += 1
            finally:
                self._waiting -= 1
        connection = None
        try:
            connection = self._connect()
            return connection
        finally:
            if connection is None:
                self._closed_one()

    def _can_take(self) -> bool:
        return not self._paused and (bool(self._idle) or self._opened < READERS_MAX)

    def _give(self, connection: Connection, *, sound: bool) -> None:
        if sound and len(self._idle) < READERS_KEPT:
            self._idle.append(connection)
            if self._waiting or self._paused:
                with self._changed:
                    self._changed.notify_all()
            return
        try:
            connection.close()
        except DriverError:
            # It is of no more use either way.
            pass
        finally:
            self._closed_one()

    def _closed_one(self) -> None:
        with self._changed:
            self._opened -= 1
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------------ pauses

    def pause(self, timeout_s: float) -> bool:
        """Let nobody begin to read, wait for those who do, and close all connections.

        Args:
            timeout_s: How long to wait at most.

        Returns:
            Whether all are closed; `resume` in either case.
        """
        with self._changed:
            self._paused = True
            return self._changed.wait_for(self._drained, timeout=timeout_s)

    def _drained(self) -> bool:
        while self._idle:
            connection = self._idle.pop()
            self._opened -= 1
            try:
                connection.close()
            except DriverError:
                continue
        return self._opened == 0

    def resume(self) -> None:
        """End a pause."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def resume_in_child(self) -> None:
        """End a pause in the child of a fork, where no other caller is left."""
        self._changed = Condition()
        self._waiting = 0
        self._opened = len(self._idle)
        self._paused = False

    def abandon(self) -> tuple[object, ...]:
        """In the child of a fork that could not wait: let go of the connections without closing them.

        Returns:
            What must be kept alive, and never be touched.
        """
        left = tuple(self._idle)
        self._idle = []
        return left
