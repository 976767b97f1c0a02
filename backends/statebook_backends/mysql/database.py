"""One database in one process: its sessions, its group commit and what is remembered of its journals.

A fork must not carry sessions over: two processes would talk into one. Everything that holds a session or a lock is
therefore kept a process, and a child makes its own at its first call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from statebook.capabilities import Capabilities
from statebook.errors import DataError, StoreClosed
from statebook_backends.mysql.heads import HeadCache, Numbers
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.pool import Pool
from statebook_backends.mysql.schema import prepare
from statebook_backends.mysql.server import Server, examine
from statebook_backends.mysql.sql import Sql, Value
from statebook_backends.mysql.store import Link, tls_of
from statebook_backends.mysql.transactions import Runner, Transaction

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from ssl import SSLContext

    from statebook_backends.mysql.store import Answer

T = TypeVar("T")


class Process:
    """What one process holds of a database.

    Attributes:
        pid: The process.
        pool: Its sessions.
        runner: Runs its transactions.
        heads: What it remembers of journals.
        numbers: The numbers of the threads that it has read.
    """

    __slots__ = ("heads", "numbers", "pid", "pool", "runner")

    def __init__(self, options: MysqlOptions, tls: SSLContext | None, sql: Sql, room: int) -> None:
        self.pid = os.getpid()
        self.pool = Pool(options, tls)
        self.runner = Runner(self.pool, sql, room)
        self.heads = HeadCache()
        self.numbers = Numbers()


class Database:
    """A store's hold on a database: its namespace, and whether it is closed. Safe from many threads.

    Attributes:
        namespace: The namespace of its rows, as it stands in them.
        options: How it was opened.
        server: What is known of the server.
        sql: Renders statements.
    """

    def __init__(self, options: MysqlOptions) -> None:
        """Connect, judge the server, and see that the tables are there.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The server, the user or the tables cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The tables are of another format.
            BackendUnavailable: The server does not answer.
        """
        self.options = options
        self.namespace = options.namespace.encode()
        self.sql = Sql(options.table_prefix)
        self._tls = tls_of(options)
        link = Link(options, self._tls)
        try:
            self.server: Server = examine(link, self.sql, options)
            prepare(link, self.sql, options)
        except BaseException:
            link.close()
            raise
        first = Process(options, self._tls, self.sql, self.server.request_bytes_max)
        first.pool.adopt(link)
        self._processes = {first.pid: first}
        self._process = first
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """What the store declares."""
        return self.server.capabilities

    @property
    def process(self) -> Process:
        """What this process holds.

        Raises:
            StoreClosed: The store is closed (ERR-5).
        """
        if self._closed:
            raise StoreClosed("the store is closed; open a new one", backend="mysql")
        process, pid = self._process, os.getpid()
        if process.pid != pid:
            # The child of a fork. Setting a default is one step, so that all its threads get the same.
            made = Process(self.options, self._tls, self.sql, self.server.request_bytes_max)
            process = self._process = self._processes.setdefault(pid, made)
        return process

    def run(self, function: Callable[[Transaction], T], damage: type[DataError], key: str | None) -> T:
        """Judge and write in one transaction; see `Runner.run`."""
        return self.process.runner.run(function, damage, key)

    def ask(
        self, damage: type[DataError], key: str | None, text: str, *values: Value | tuple[Value, ...]
    ) -> tuple[tuple[Value, ...], ...]:
        """Run one query in one round trip."""
        return self.process.runner.read((self.sql(text, *values),), damage, key)[0].rows

    def read(self, statements: Sequence[bytes], damage: type[DataError], key: str | None) -> list[Answer]:
        """Run queries in one round trip and one snapshot; see `Runner.read`."""
        return self.process.runner.read(statements, damage, key)

    def reading(self, damage: type[DataError], key: str | None = None) -> AbstractContextManager[Transaction]:
        """Read in several round trips inside one snapshot; see `Runner.reading`."""
        return self.process.runner.reading(damage, key)

    def close(self) -> None:
        """Close the sessions; those in use behind their calls. A second call is harmless (ERR-5)."""
        self._closed = True
        process = self._processes.get(os.getpid())
        if process is not None:
            process.pool.close()
