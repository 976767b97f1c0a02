"""HTTP/1.1 over kept connections, as far as objects need it: one request, one send, one answer, never sent again.

A general client sends headers and body apart, and parses each answer through an e-mail parser; a PUT of a head costs
more there than signing and hashing it. This one does less: no redirects, no cookies, no encodings, no retries.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Mapping
from select import POLLIN, poll
from threading import Lock
from typing import Final

import msgspec

_JOINED_MAX: Final = 1_048_576
"""Bodies up to this size are sent in one piece with their headers, in bytes."""

_HEAD_MAX: Final = 65_536
_RECEIVE: Final = 65_536
_INFORMS_MAX: Final = 8
_HOSTS_MAX: Final = 64


class NotConnected(OSError):
    """No connection could be made: nothing was sent."""


class NoAnswer(OSError):
    """A connection broke, or was silent for too long, before a whole answer had come: the request was perhaps read.

    Attributes:
        closed: Whether the connection was one that had been kept and the endpoint had closed it.
    """

    def __init__(self, message: str, *, closed: bool = False) -> None:
        super().__init__(message)
        self.closed = closed


class Address(msgspec.Struct, frozen=True):
    """Where an endpoint listens.

    Attributes:
        host: Its name or number, without brackets.
        port: Its port.
        secure: Whether it speaks TLS.
    """

    host: str
    port: int
    secure: bool


class Answer(msgspec.Struct, frozen=True):
    """An answer.

    Attributes:
        status: The status.
        headers: The headers, their names in lower case; of a name that comes twice, the last.
        body: The body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Kept connections by address. Safe from many threads, each of which has a connection to itself during a call."""

    def __init__(
        self, *, trust: ssl.SSLContext | None, connect_timeout_s: float, read_timeout_s: float, kept_max: int
    ) -> None:
        """Begin without connections.

        Args:
            trust: How certificates are checked, for addresses that speak TLS.
            connect_timeout_s: How long to wait for a connection and its handshake, in seconds.
            read_timeout_s: How long to wait for each part of an answer, in seconds.
            kept_max: How many idle connections are kept for an address.
        """
        self._trust = trust
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._kept_max = kept_max
        self._lock = Lock()
        self._kept: dict[Address, list[_Connection]] = {}
        self._closed = False

    def exchange(self, address: Address, method: str, head: bytes, body: bytes) -> Answer:
        """Send a request once, and receive its answer.

        Args:
            address: Where to.
            method: The method, which says whether an answer can have a body.
            head: The request line and the headers, with the empty line behind them.
            body: The body.

        Returns:
            The answer, of whatever status.

        Raises:
            NotConnected: Nothing was sent.
            NoAnswer: The request was perhaps read.
        """
        connection, kept = self._take(address)
        sound = False
        try:
            answer = connection.exchange(method, head, body)
            sound = connection.keeps
            return answer
        except (OSError, ValueError) as error:
            closed = kept and not connection.heard and not isinstance(error, TimeoutError)
            if closed:
                self._forget(address)  # the others that were kept have probably been closed with it
            raise NoAnswer(f"{type(error).__name__}: {error}", closed=closed) from error
        finally:
            if sound:
                self._give(address, connection)
            else:
                connection.close()

    def _take(self, address: Address) -> tuple[_Connection, bool]:
        while True:
            with self._lock:
                idle = self._kept.get(address)
                connection = idle.pop() if idle else None
            if connection is None:
                return _Connection(self._connected(address)), False
            if connection.is_quiet():
                return connection, True
            connection.close()

    def _give(self, address: Address, connection: _Connection) -> None:
        with self._lock:
            idle = self._kept.get(address)
            if idle is None and not self._closed and len(self._kept) < _HOSTS_MAX:
                idle = self._kept[address] = []
            if idle is not None and len(idle) < self._kept_max:
                idle.append(connection)
                return
        connection.close()

    def _connected(self, address: Address) -> socket.socket:
        try:
            made = socket.create_connection((address.host, address.port), self._connect_timeout_s)
        except OSError as error:
            raise NotConnected(f"{type(error).__name__}: {error}") from error
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.secure and self._trust is not None:
                made = self._trust.wrap_socket(made, server_hostname=address.host)
            made.settimeout(self._read_timeout_s)
        except OSError as error:
            made.close()
            raise NotConnected(f"{type(error).__name__}: {error}") from error
        return made

    def _forget(self, address: Address) -> None:
        with self._lock:
            closing = self._kept.pop(address, [])
        for connection in closing:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and keep none from now on."""
        self._closed = True
        for address in tuple(self._kept):
            self._forget(address)


class _Connection:
    """One connection, used by one call at a time.

    Attributes:
        heard: Whether any byte of the answer has come.
        keeps: Whether the connection can be used again behind the last answer.
    """

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._rest = b""
        self.heard = False
        self.keeps = False

    def is_quiet(self) -> bool:
        """Tell whether an idle connection is still open: the endpoint has neither closed it nor said anything."""
        waiting = poll()
        waiting.register(self._socket, POLLIN)
        return not waiting.poll(0)

    def exchange(self, method: str, head: bytes, body: bytes) -> Answer:
        """Send a request, and receive its answer.

        Raises:
            OSError: The connection broke, or was silent for too long.
            ValueError: What came is no HTTP.
        """
        self._rest, self.heard, self.keeps = b"", False, False
        try:
            if len(body) <= _JOINED_MAX:
                self._socket.sendall(head + body)
            else:
                self._socket.sendall(head)
                self._socket.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            # An endpoint that refuses may answer and close before it has read the body.
            answer = self._answer(method)
            self.keeps = False
            return answer
        return self._answer(method)

    def _answer(self, method: str) -> Answer:
        for _ in range(_INFORMS_MAX):
            version, status, headers = self._head()
            if status >= 200:
                break
        else:
            raise ValueError("an endpoint that only informs")
        closing = version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        if method == "HEAD" or status in (204, 304):
            body = b""
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            body = self._chunks()
        elif "content-length" in headers:
            body = self._exactly(_natural(headers["content-length"]))
        else:
            body, closing = self._until_closed(), True
        self.keeps = not closing and not self._rest
        return Answer(status, headers, body)

    def _head(self) -> tuple[str, int, dict[str, str]]:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > _HEAD_MAX:
                raise ValueError("headers without an end")
            self._more()
        first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
        self._rest = self._rest[end + 4 :]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):
            raise ValueError("no HTTP/1 answer")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError("a header without a colon")
            headers[name.lower()] = value.strip()
        return words[0], _natural(words[1]), headers

    def _more(self) -> None:
        part = self._socket.recv(_RECEIVE)
        if not part:
            raise ConnectionResetError("the endpoint closed the connection")
        self.heard = True
        self._rest += part

    def _exactly(self, size: int) -> bytes:
        if len(self._rest) >= size:
            body, self._rest = self._rest[:size], self._rest[size:]
            return body
        whole = bytearray(size)
        view = memoryview(whole)
        at = len(self._rest)
        view[:at], self._rest = self._rest, b""
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionResetError("the endpoint closed the connection within a body")
            at += count
        return bytes(whole)

    def _line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            if len(self._rest) > _HEAD_MAX:
                raise ValueError("a line without an end")
            self._more()
        line, self._rest = self._rest[:end], self._rest[end + 2 :]
        return line

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := int(self._line().partition(b";")[0], 16):
            parts.append(self._exactly(size))
            if self._line():
                raise ValueError("a chunk that does not end")
        while self._line():
            continue
        return b"".join(parts)

    def _until_closed(self) -> bytes:
        parts = [self._rest]
        self._rest = b""
        while part := self._socket.recv(_RECEIVE):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"no number: {text[:40]!r}")
    return int(text)
