"""Reads replies from a socket, without the driver's layers for protocols, caches, decoding and health.

The driver connects, logs in and closes; commands are ours and replies are few kinds (RESP2), so that reading one is a
look for the end of its line. What is no reply is an `OSError`, as a broken connection is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from statebook_backends.redis.errors import DriverError, Reply

_RECEIVE: Final = 262_144
"""A page comes in one piece."""

_LINE_MAX: Final = 1_048_576
_DEPTH_MAX: Final = 16
_END: Final = 2


class Socket(Protocol):
    """What is used of a socket."""

    def recv(self, size: int, /) -> bytes:
        """Some bytes, or none where the other side has closed."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """The same, into a buffer; gives how many."""
        ...


class BadReply(OSError):
    """What came is no reply: the connection is of no more use."""


class Replies:
    """Reads the replies that come over one connection, which is used by one call at a time."""

    def __init__(self, source: Socket, make_error: Callable[[str], DriverError]) -> None:
        """Read from a socket with nothing on its way.

        Args:
            source: The socket; its time-out is the reader's.
            make_error: Turns the text of an error reply into the driver's error.
        """
        self._source = source
        self._make_error = make_error
        self._data = b""
        self._at = 0

    def read(self) -> Reply:
        """Read one reply; an error reply is a value.

        Raises:
            OSError: The connection broke, nothing came in time, or what came is no reply.
        """
        return self._reply(0)

    def _reply(self, depth: int) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b":":
            return _number(rest)
        if kind == b"$":
            size = _number(rest)
            return None if size < 0 else self._exactly(size)
        if kind == b"*":
            count = _number(rest)
            if depth == _DEPTH_MAX:
                raise BadReply("lists within lists without an end")
            return None if count < 0 else [self._reply(depth + 1) for _ in range(count)]
        if kind == b"+":
            return rest
        if kind == b"-":
            return self._make_error(rest.decode(errors="replace"))
        raise BadReply(f"no reply begins with {kind!r}")

    def _line(self) -> bytes:
        while (end := self._data.find(b"\r\n", self._at)) < 0:
            if len(self._data) - self._at > _LINE_MAX:
                raise BadReply("a line without an end")
            self._more()
        line = self._data[self._at : end]
        self._at = end + _END
        return line

    def _more(self) -> None:
        part = self._source.recv(_RECEIVE)
        if not part:
            raise ConnectionResetError("the server closed the connection")
        self._data = self._data[self._at :] + part if self._at < len(self._data) else part
        self._at = 0

    def _exactly(self, size: int) -> bytes:
        end = self._at + size
        if end + _END <= len(self._data):
            word = self._data[self._at : end]
            if self._data[end : end + _END] != b"\r\n":
                raise BadReply("a word without an end")
            self._at = end + _END
            return word
        whole = bytearray(size + _END)
        view = memoryview(whole)
        there = len(self._data) - self._at
        view[:there] = self._data[self._at :]
        self._data, self._at = b"", 0
        while there < size + _END:
            count = self._source.recv_into(view[there:])
            if not count:
                raise ConnectionResetError("the server closed the connection within a reply")
            there += count
        if whole[size:] != b"\r\n":
            raise BadReply("a word without an end")
        return bytes(view[:size])


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadReply(f"no number: {text[:40]!r}") from error
