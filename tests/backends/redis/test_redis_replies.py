"""Replies are read from a socket whatever pieces they come in, and what is none breaks the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis.exceptions import ResponseError

from statebook_backends.redis.replies import BadReply, Replies

if TYPE_CHECKING:
    from statebook_backends.redis.errors import Reply

ALL = (
    b":1\r\n:-7\r\n$-1\r\n*-1\r\n+OK\r\n$0\r\n\r\n$5\r\na\r\nb\xff\r\n*0\r\n"
    b"*4\r\n:1\r\n$1\r\nx\r\n*2\r\n$-1\r\n+y\r\n-ERR inside\r\n-WRONG outside\r\n"
)
READ: list[object] = [1, -7, None, None, b"OK", b"", b"a\r\nb\xff", []]
READ += [[1, b"x", [None, b"y"], "ERR inside"], "WRONG outside"]


class Pieces:
    """A socket whose bytes come in pieces of a size, and then no more."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def recv(self, size: int, /) -> bytes:
        part, self.data = self.data[: min(size, self.size)], self.data[min(size, self.size) :]
        return part

    def recv_into(self, buffer: memoryview, /) -> int:
        part = self.recv(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def _replies(data: bytes, size: int) -> Replies:
    return Replies(Pieces(data, size), ResponseError)


def _plain(reply: Reply) -> object:
    if isinstance(reply, ResponseError):
        return str(reply)
    return [_plain(each) for each in reply] if isinstance(reply, list) else reply


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 1_000])
def test_replies_come_whole_whatever_pieces_they_come_in(size: int) -> None:
    replies = _replies(ALL, size)
    assert [_plain(replies.read()) for _ in READ] == READ


@pytest.mark.parametrize("size", [4_096, 262_144, 1 << 24])
def test_long_words_come_whole_and_leave_what_is_behind_them(size: int) -> None:
    word = bytes(range(256)) * 40_000
    replies = _replies(b"*2\r\n$%d\r\n%b\r\n:3\r\n+next\r\n" % (len(word), word), size)
    assert replies.read() == [word, 3]
    assert replies.read() == b"next"


@pytest.mark.parametrize(
    "data",
    [b"?1\r\n", b"\r\n", b":x\r\n", b"$x\r\n", b"$2\r\nabcd\r\n", b"*1\r\n" * 40, b"+" + b"x" * 2_000_000],
)
@pytest.mark.parametrize("size", [1_000_000, 4])
def test_what_is_no_reply_breaks_the_connection(data: bytes, size: int) -> None:
    if len(data) > 1_000 and size < 1_000:
        size = 1_000
    with pytest.raises(BadReply):
        _replies(data, size).read()


@pytest.mark.parametrize("data", [b"", b":", b"$5\r\nab", b"*2\r\n:1\r\n", b"$200000\r\nab"])
def test_a_reply_that_ends_early_is_a_broken_connection(data: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        _replies(data, 1_000).read()
