"""Connections to one server, and their pool. The only place that connects.

The driver's own commands, pools and retries are not used: a command is packed by us, sent over one connection and
answered once. Nothing is ever sent twice behind our back (ERR-3), and no driver's default is relied on.
"""

from __future__ import annotations

from collections.abc import Callable
from select import POLLIN, poll
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

import msgspec
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from statebook.errors import Overloaded
from statebook_backends.redis.errors import REFUSALS, DriverError, NotSent, Reply, driver_errors
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.replies import Replies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket

Address: TypeAlias = tuple[str, int]
"""Host and port."""

ASKING: Final = b"*1\r\n$6\r\nASKING\r\n"
"""Lets a node that is taking over a slot answer the next command."""


class Driver(Protocol):
    """What is used of the driver's connection."""

    def connect(self) -> None:
        """Connect, and log in."""

    def opened(self) -> tuple[socket, Callable[[str], DriverError]]:
        """Its socket, with nothing on its way, and what turns the text of an error reply into the driver's error."""
        ...

    def can_read(self, timeout: float = 0) -> bool:
        """Whether something is there to read, or the other side has gone."""
        ...

    def check_health(self) -> None:
        """Ask the server for a sign of life."""

    def disconnect(self) -> None:
        """Close the connection."""


class Wire:
    """One connection, used by one call at a time: the driver's for connecting and closing, its socket for the rest."""

    __slots__ = ("_driver", "_health_check_s", "_heard", "_poll", "_replies", "_socket")

    def __init__(self, connection: Driver, health_check_s: float) -> None:
        """Connect, and log in.

        Args:
            connection: The driver's connection, made but not connected.
            health_check_s: After how long without a reply the server is asked for a sign of life, in seconds.
        """
        self._driver = connection
        self._driver.connect()
        self._socket, make_error = self._driver.opened()
        self._replies = Replies(self._socket, make_error)
        self._health_check_s = health_check_s
        self._heard = monotonic()
        # With TLS what is there to read may be of no concern to anybody but TLS.
        self._poll = None if isinstance(connection, _Tls) else poll()
        if self._poll is not None:
            self._poll.register(self._socket, POLLIN)

    def is_alive(self) -> bool:
        """Tell whether an idle connection is still of use: the server has neither closed it nor said anything.

        Raises:
            Exception: What the driver raises where it is not.
        """
        if self._driver.can_read(0) if self._poll is None else self._poll.poll(0):
            return False
        if monotonic() - self._heard > self._health_check_s:
            self._driver.check_health()
            self._heard = monotonic()
        return True

    def send(self, payload: bytes) -> None:
        """Send packed commands."""
        self._socket.sendall(payload)

    def read(self) -> Reply:
        """Read one reply; an error reply is a value, and leaves the connection as it is."""
        reply = self._replies.read()
        if isinstance(reply, DriverError) and not isinstance(reply, REFUSALS):
            raise reply
        self._heard = monotonic()
        return reply

    def disconnect(self) -> None:
        """Close the connection."""
        self._driver.disconnect()


class _Plain(Connection):
    """A connection over TCP."""

    def opened(self) -> tuple[socket, Callable[[str], DriverError]]:
        return cast("socket", self._sock), self._parser.parse_error


class _Tls(SSLConnection):
    """A connection over TLS."""

    def opened(self) -> tuple[socket, Callable[[str], DriverError]]:
        return cast("socket", self._sock), self._parser.parse_error


class Login(msgspec.Struct, frozen=True):
    """Who connects, and to which database.

    Attributes:
        username: The user, or None.
        password: The password, or None. Shown nowhere.
        db: The number of the database.
    """

    username: str | None
    password: str | None
    db: int

    def __repr__(self) -> str:
        return f"Login(username={self.username!r}, db={self.db})"


def login_of(options: RedisOptions) -> Login:
    """Who connects to the servers that hold the data."""
    password = options.password
    return Login(options.username, None if password is None else password.get_secret_value(), options.db)


def connect(address: Address, options: RedisOptions, login: Login) -> Wire:
    """Open a connection.

    Args:
        address: Where to.
        options: Time-outs and TLS.
        login: Who.

    Returns:
        The connection, ready for commands.

    Raises:
        NotSent: The server is not there, or refuses.
    """
    settings: Mapping[str, object] = {
        "host": address[0],
        "port": address[1],
        "username": login.username,
        "password": login.password,
        "db": login.db,
        "socket_connect_timeout": options.connect_timeout_s,
        "socket_timeout": options.read_timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),  # a write that is sent twice may be applied twice
        "retry_on_timeout": False,
        "retry_on_error": (),
        "health_check_interval": options.health_check_s,
        "decode_responses": False,
        "protocol": 2,  # the same replies from every version of driver and server
    }
    secure: Mapping[str, object] = {
        "ssl_ca_certs": options.tls_ca_file,
        "ssl_certfile": options.tls_cert_file,
        "ssl_keyfile": options.tls_key_file,
        "ssl_cert_reqs": "required" if options.tls_verify else "none",
        "ssl_check_hostname": options.tls_verify,
    }
    with driver_errors(connecting=True):
        made = _make(_Tls, {**settings, **secure}) if options.uses_tls else _make(_Plain, settings)
        try:
            return Wire(made, options.health_check_s)
        except BaseException:
            made.disconnect()
            raise


def _make(kind: type[Connection], settings: Mapping[str, object]) -> Driver:
    build = cast("Callable[..., Driver]", kind)
    return build(**settings)


class Node:
    """One server with a bounded pool of connections, each used by one call at a time. Safe from many threads.

    Attributes:
        address: Host and port.
    """

    def __init__(self, address: Address, options: RedisOptions, login: Login, *, must_be_master: bool) -> None:
        """Make an empty pool; opens nothing.

        Args:
            address: Host and port.
            options: Time-outs, bounds and TLS.
            login: Who connects.
            must_be_master: Whether every new connection asks the server for its role. Nodes of a cluster answer for
                their own slots only, and need not be asked.
        """
        self.address = address
        self._options = options
        self._login = login
        self._must_be_master = must_be_master
        self._idle: list[Wire] = []
        self._opened = 0
        self._waiting = 0
        self._closed = False
        self._changed = Condition()

    @property
    def opened(self) -> int:
        """How many connections are open."""
        return self._opened

    def exchange(self, payload: bytes, count: int = 1) -> list[Reply]:
        """Send commands, and read their replies.

        Args:
            payload: Packed commands.
            count: How many there are.

        Returns:
            Their replies, error replies among them.

        Raises:
            NotSent: The commands were not handed over whole: a single one is not run. Of several, where the connection
                broke while they were sent, this is `ReplyLost`.
            ReplyLost: A reply did not come.
            Overloaded: All connections are in use.
        """
        connection = self.take()
        sound = False
        try:
            with driver_errors() as phase:
                phase.sent = count > 1
                connection.send(payload)
                phase.sent = True
                replies = phase.replies
                for _ in range(count):
                    replies.append(connection.read())
            sound = True
            return replies
        finally:
            self.give(connection, sound=sound)

    def send(self, connection: Wire, payload: bytes) -> None:
        """Send several commands over a connection that was taken; `receive` reads their replies.

        Raises:
            ReplyLost: Some of them may have been handed over.
        """
        with driver_errors() as phase:
            phase.sent = True
            connection.send(payload)

    def receive(self, connection: Wire, count: int) -> list[Reply]:
        """Read the replies to what was sent.

        Raises:
            ReplyLost: One did not come; carries those that did.
        """
        with driver_errors() as phase:
            phase.sent = True
            for _ in range(count):
                phase.replies.append(connection.read())
        return phase.replies

    # ------------------------------------------------------------------------------------------------- connections

    def take(self) -> Wire:
        """Take a connection that is known to be alive, or a new one: a killed one is replaced here (ERR-4).

        Returns:
            The connection; `give` it back.

        Raises:
            NotSent: The server is not there, or refuses.
            Overloaded: All connections are in use.
        """
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                fresh = self._wait_or_open()
                if fresh is None:
                    continue
                return fresh
            if self._is_alive(connection):
                return connection
            self._drop(connection)

    def give(self, connection: Wire, *, sound: bool) -> None:
        """Give a connection back; one that is not sound is closed."""
        if sound and not self._closed:
            self._idle.append(connection)
            if self._waiting:
                with self._changed:
                    self._changed.notify()
            self._sweep()
            return
        self._drop(connection)

    @staticmethod
    def _is_alive(connection: Wire) -> bool:
        try:
            with driver_errors():
                return connection.is_alive()
        except NotSent:
            return False

    def _wait_or_open(self) -> Wire | None:
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(self._can_take, timeout=self._options.pool_timeout_s):
                    raise Overloaded(
                        f"all {self._options.connections_max} connections are in use; try again, or raise "
                        "connections_max",
                        backend=self._options.scheme,
                    )
                if self._idle:
                    return None
                self._opened += 1
            finally:
                self._waiting -= 1
        connection = None
        try:
            connection = self._open()
            return connection
        finally:
            if connection is None:
                self._closed_one()

    def _can_take(self) -> bool:
        return bool(self._idle) or self._opened < self._options.connections_max

    def _open(self) -> Wire:
        connection = connect(self.address, self._options, self._login)
        if not self._must_be_master:
            return connection
        role: Reply = None
        try:
            with driver_errors(connecting=True):
                connection.send(b"*1\r\n$4\r\nROLE\r\n")
                role = connection.read()
                if isinstance(role, DriverError):
                    raise role
        finally:
            if not (isinstance(role, list) and role and role[0] == b"master"):
                connection.disconnect()
        if not (isinstance(role, list) and role and role[0] == b"master"):
            raise NotSent("the server is a replica, not a master", connecting=True, demoted=True)
        return connection

    def _drop(self, connection: Wire) -> None:
        try:
            with driver_errors():
                connection.disconnect()
        except NotSent:
            pass  # it is of no more use either way
        finally:
            self._closed_one()

    def _closed_one(self) -> None:
        with self._changed:
            self._opened -= 1
            self._changed.notify()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        self._closed = True
        self._sweep()

    def _sweep(self) -> None:
        while self._closed and self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._drop(connection)
