"""Connections: how a server is reached, in which session, and how statements travel. The only place that connects."""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence
from typing import Final, cast

import msgspec
import pymysql  # type: ignore[import-untyped]
from pymysql.connections import Connection  # type: ignore[import-untyped]
from pymysql.constants import CLIENT  # type: ignore[import-untyped]

from statebook.errors import BackendUnavailable, InvalidConfiguration, MissingDriver
from statebook_backends.mysql.errors import DriverError, Failure, classify_opening, driver_errors
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import Row

_SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO"
_INSTALL: Final = 'python -m pip install "statebook[mysql]"'


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What the server answered to one statement.

    Attributes:
        rows: The rows of a SELECT; none for others.
        count: How many rows a change has met, whether they were changed or were so already.
        insert_id: The number that an INSERT was given, or 0.
    """

    rows: tuple[Row, ...]
    count: int
    insert_id: int


class _Connection(Connection):  # type: ignore[misc]  # the driver has no types
    """The driver's connection, asked for several results at once and for what waits in its socket."""

    def exchange(self, request: bytes, errors: driver_errors) -> list[Answer]:
        """Send statements in one request and read all answers."""
        answers: list[Answer] = []
        self.query(request)
        while True:
            result = self._result
            rows = cast("tuple[Row, ...]", result.rows or ())
            answers.append(Answer(rows, cast(int, result.affected_rows), cast(int, result.insert_id or 0)))
            errors.answered += 1
            if not result.has_next:
                return answers
            self.next_result()

    def waits(self) -> bool:
        """Tell whether something stands in the socket that nobody has asked for, such as its end."""
        sock = self._sock
        if sock is None:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def abandon(self) -> None:
        """Close the socket without a word to the server."""
        self._force_close()

    @property
    def is_encrypted(self) -> bool:
        """Whether the socket talks TLS."""
        return isinstance(self._sock, ssl.SSLSocket)


class Link:
    """One session on the server. Used by one call at a time.

    Attributes:
        thread_id: The session's number on the server.
        idle_since: When it was used last, on the pool's clock.
    """

    __slots__ = ("_connection", "idle_since", "thread_id")

    def __init__(self, options: MysqlOptions) -> None:
        """Connect, and set the session up.

        Args:
            options: Where to, and how.

        Raises:
            InvalidConfiguration: User, password, database or TLS are wrong (ERR-6).
            BackendUnavailable: The server does not answer, or has no connection left.
        """
        self.idle_since = 0.0
        self._connection = _connect(options)
        self.thread_id = int(self._connection.thread_id())
        lock = options.lock_timeout_s
        try:
            self.run(
                (
                    f"SET NAMES utf8mb4, SESSION sql_mode='{_SQL_MODE}', SESSION autocommit=1, "
                    f"SESSION innodb_lock_wait_timeout={lock}, SESSION lock_wait_timeout={lock}, "
                    "SESSION foreign_key_checks=1, SESSION unique_checks=1".encode("ascii"),
                    b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                    b"SET SESSION TRANSACTION READ WRITE",
                )
            )
        except Failure as failure:
            self.abandon()
            raise classify_opening(failure, where(options)) from (failure.__cause__ or failure)

    def run(self, statements: Sequence[bytes], *, commits: bool = False) -> list[Answer]:
        """Send statements in one round trip; the server runs them in order and stops at the first error.

        Args:
            statements: At least one.
            commits: Whether the last one is a COMMIT.

        Returns:
            As many answers.

        Raises:
            Failure: The server answered one with an error, or the connection broke.
        """
        with driver_errors(len(statements), commits=commits) as errors:
            return self._connection.exchange(b";".join(statements), errors)
        raise AssertionError("the block returns or raises")

    def is_stale(self, *, idle_s: float, ping_after_s: float) -> bool:
        """Tell whether the server has left while the session was idle.

        Args:
            idle_s: For how long it was idle.
            ping_after_s: After how long the server is asked.

        Returns:
            Whether it is of no more use.
        """
        waits = self._connection.waits()
        if waits and not self._connection.is_encrypted:
            return True
        if not waits and idle_s <= ping_after_s:
            return False
        try:
            self._connection.ping()
        except (DriverError, OSError):
            return True
        return False

    def close(self) -> None:
        """Say goodbye and close."""
        try:
            self._connection.close()
        except DriverError:
            # It was closed already.
            return

    def abandon(self) -> None:
        """Close the socket without a word: after an error, or in the child of a fork."""
        self._connection.abandon()


def _connect(options: MysqlOptions) -> _Connection:
    settings: dict[str, object] = {}
    if options.tls:
        settings["ssl"] = _tls(options)
    try:
        with driver_errors(1, commits=False):
            return _Connection(
                host=options.host,
                port=options.port,
                user=options.user,
                password=(options.password or "").encode(),
                database=options.database,
                charset="utf8mb4",
                autocommit=None,
                client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
                connect_timeout=options.connect_timeout_s,
                read_timeout=options.read_timeout_s,
                write_timeout=options.write_timeout_s,
                program_name="statebook",
                **settings,
            )
    except Failure as failure:
        raise classify_opening(failure, where(options)) from (failure.__cause__ or failure)
    except RuntimeError as error:
        raise MissingDriver(
            f"the server's way to check passwords needs the package cryptography; run: {_INSTALL}",
            install=_INSTALL,
            option="password",
            backend="mysql",
        ) from error
    raise BackendUnavailable(f"the server at {where(options)} does not answer", backend="mysql")


def _tls(options: MysqlOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ssl_ca)
        if options.ssl_cert is not None and options.ssl_key is not None:
            context.load_cert_chain(options.ssl_cert, options.ssl_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(
            "a file of ssl_ca, ssl_cert or ssl_key cannot be read, or is no PEM", option="ssl_ca", backend="mysql"
        ) from error
    if not options.ssl_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def where(options: MysqlOptions) -> str:
    """Server and database, without credentials."""
    return f"{options.host}:{options.port}/{options.database}"


def driver_version() -> str:
    """The driver's version, for the facts that a store declares."""
    return str(pymysql.VERSION_STRING)
