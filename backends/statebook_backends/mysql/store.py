"""Connections: how a server is reached, in which session, and how statements travel. The only place that connects."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import pymysql  # type: ignore[import-untyped]
from pymysql.connections import MAX_PACKET_LEN, Connection  # type: ignore[import-untyped]
from pymysql.constants import CLIENT, COMMAND, CR  # type: ignore[import-untyped]
from pymysql.err import OperationalError, raise_mysql_exception  # type: ignore[import-untyped]

from statebook.errors import InvalidConfiguration, MissingDriver
from statebook_backends.mysql.errors import DriverError, Failure, Lost, classify_opening, driver_errors
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.packets import Packets
from statebook_backends.mysql.sql import Row

_SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
_AUTOCOMMIT: Final = 2
_BUFFER_BYTES: Final = 65_536
_HOPES_MS: Final = 5
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


class Link:
    """One session on the server. Used by one call at a time.

    Attributes:
        thread_id: The session's number on the server.
        idle_since: When it was used last, on the pool's clock.
        autocommits: Whether each statement is a transaction of its own; None where that is not known for certain.
    """

    __slots__ = ("_connection", "_packets", "_poll", "autocommits", "idle_since", "thread_id")

    def __init__(self, options: MysqlOptions, tls: ssl.SSLContext | None) -> None:
        """Connect, and set the session up.

        Args:
            options: Where to, and how.
            tls: What `tls_of` made of the options: reading authorities is dear.

        Raises:
            InvalidConfiguration: User, password, database or TLS are wrong (ERR-6).
            BackendUnavailable: The server does not answer, or has no connection left.
        """
        self.idle_since = 0.0
        self.autocommits: bool | None = None
        self._connection, descriptor = _connect(options, tls)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._connection.read_directly(self._poll)
        self._packets = Packets(self._connection, self._connection.decoders)
        self.thread_id = int(self._connection.thread_id())
        lock = options.lock_timeout_s
        try:
            self.run(
                (
                    f"SET SESSION sql_mode='{_SQL_MODE}', SESSION autocommit=1, "
                    f"SESSION innodb_lock_wait_timeout={lock}, SESSION lock_wait_timeout={lock}, "
                    "SESSION foreign_key_checks=1, SESSION unique_checks=1".encode("ascii"),
                    b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                    b"SET SESSION TRANSACTION READ WRITE",
                )
            )
        except Failure as failure:
            self.close()
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
        answers: list[Answer] = []
        self.autocommits = None
        with driver_errors(len(statements), commits=commits, answers=answers):
            number = self._connection.send(b";".join(statements))
            for rows, count, insert_id in self._packets.results(number):
                answers.append(Answer(rows, count, insert_id))
        self.autocommits = self._packets.status & _AUTOCOMMIT != 0
        return answers

    def count(self, statements: Sequence[bytes], *, commits: bool) -> list[int]:
        """Send changes in one round trip, as `run` does, and read no more than how many rows each has met.

        Args:
            statements: At least one; none of them is a query.
            commits: Whether the last one is a COMMIT.

        Returns:
            As many counts.

        Raises:
            Failure: The server answered one with an error, or the connection broke.
        """
        counts: list[int] = []
        self.autocommits = None
        with driver_errors(len(statements), commits=commits, answers=counts):
            number = self._connection.send(b";".join(statements))
            self._packets.counts(counts, len(statements), number)
        self.autocommits = self._packets.status & _AUTOCOMMIT != 0
        return counts

    def is_stale(self, *, idle_s: float, ping_after_s: float) -> bool:
        """Tell whether the server has left while the session was idle.

        Args:
            idle_s: For how long it was idle.
            ping_after_s: After how long the server is asked.

        Returns:
            Whether it is of no more use.
        """
        if not self._connection.open:
            return True
        self._connection.wake_at(1)
        if self._poll.poll(0):
            # Nobody has asked for what stands there: the end of the connection, or, with TLS, a ticket.
            idle_s = ping_after_s + 1.0
        if idle_s <= ping_after_s:
            return False
        try:
            self._connection.ping(reconnect=False)
        except (DriverError, OSError):
            return True
        return False

    def close(self) -> None:
        """Say goodbye where that is possible, and close; the server rolls back what was open."""
        try:
            self._connection.close()
        except DriverError:
            # It was closed already.
            return


class _Connection(Connection):  # type: ignore[misc]
    """The driver's connection, with what `Packets` needs: calls that it has always had, for those who extend it."""

    _poll: select.poll | None = None
    _wakes_at = 1

    if TYPE_CHECKING:
        _sock: socket.socket
        _next_seq_id: int
        server_capabilities: int
        _read_timeout: float
        _write_timeout: float

        def _execute_command(self, command: int, sql: bytes) -> None: ...

        def _write_bytes(self, data: bytes) -> None: ...

        def _force_close(self) -> None: ...

    def _get_server_information(self) -> None:
        """Read the server's greeting; refuse a server without TLS where TLS is wanted.

        Drivers before 1.2 would then go on without it, and sign in.
        """
        super()._get_server_information()  # pyright: ignore[reportAttributeAccessIssue] - the driver has no types
        if self.ssl and not self.server_capabilities & CLIENT.SSL:
            raise OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the server does not talk TLS")

    def read_directly(self, poll: select.poll) -> None:
        """Read answers from the socket itself, once signed in: then nothing is on its way."""
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._poll = poll if hasattr(socket, "SO_RCVLOWAT") and not isinstance(self._sock, ssl.SSLSocket) else None

    def send(self, request: bytes) -> int:
        """Send statements; gives the number of the first packet of the answer."""
        if len(request) + 1 >= MAX_PACKET_LEN or not self.open:
            self._execute_command(COMMAND.COM_QUERY, request)
            number = self._next_seq_id
        else:
            self._write_bytes(b"%b\x00\x03%b" % ((len(request) + 1).to_bytes(3, "little"), request))
            number = 1
        if self._read_timeout != self._write_timeout:
            self._sock.settimeout(self._read_timeout)
            self._current_timeout = self._read_timeout  # what newer drivers remember of the line above
        return number

    def wake_at(self, size: int) -> None:
        """Be woken by so many bytes or the connection's end, where that can be had."""
        if self._poll is not None and size != self._wakes_at:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._wakes_at = size

    def receive(self, wanted: int, hoped: int) -> bytes:
        try:
            return self._received(wanted, hoped)
        except OSError as error:
            self._force_close()
            raise OperationalError(CR.CR_SERVER_LOST, f"the server's answer did not come: {error}") from error

    def _received(self, wanted: int, hoped: int) -> bytes:
        sock, buffer = self._sock, self._buffer
        parts: list[bytes] = []
        if hoped > wanted and self._poll is not None:
            # Bytes that have been taken count no more: so none is before all are there. An answer that says what went
            # wrong may be shorter than hoped for.
            self.wake_at(min(hoped, _BUFFER_BYTES))
            if not self._poll.poll(_HOPES_MS):
                self.wake_at(1)
        else:
            self.wake_at(min(wanted, _BUFFER_BYTES))
        while True:
            size = sock.recv_into(buffer)
            if not size:
                self.broken("it ends early")
            parts.append(bytes(buffer[:size]))
            wanted -= size
            if wanted <= 0:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            self.wake_at(min(wanted, _BUFFER_BYTES))

    def refused(self, packet: bytes) -> NoReturn:
        raise_mysql_exception(packet)
        raise AssertionError("the driver has not raised what the server answered")

    def broken(self, what: str) -> NoReturn:
        self._force_close()
        raise OperationalError(CR.CR_SERVER_LOST, f"the server's answer cannot be read: {what}")


def _connect(options: MysqlOptions, tls: ssl.SSLContext | None) -> tuple[_Connection, int]:
    """Connect; gives the number of the socket too, which stays the same under TLS."""
    try:
        with driver_errors(1, commits=False):
            connection = _Connection(
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
                ssl=tls,
                ssl_disabled=tls is None,
                defer_connect=True,
            )
            try:
                sock = socket.create_connection((options.host, options.port), options.connect_timeout_s)
            except OSError as error:
                raise Lost(0, undecided=False, dead=True, timed_out=isinstance(error, TimeoutError)) from error
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            descriptor = sock.fileno()
            connection.connect(sock)
    except Failure as failure:
        raise classify_opening(failure, where(options)) from (failure.__cause__ or failure)
    except RuntimeError as error:
        raise MissingDriver(
            f"the server's way to check passwords needs the package cryptography; run: {_INSTALL}",
            install=_INSTALL,
            option="password",
            backend="mysql",
        ) from error
    return connection, descriptor


def tls_of(options: MysqlOptions) -> ssl.SSLContext | None:
    """Read what TLS needs; None where none is asked for.

    Raises:
        InvalidConfiguration: A file cannot be read (ERR-6).
    """
    if not options.tls:
        return None
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
