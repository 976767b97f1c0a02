"""Commands in the form in which they go over the wire, and replies that are lists of names and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statebook_backends.redis.errors import Reply


def bulk(data: bytes) -> bytes:
    """One word of a command."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(*words: bytes) -> bytes:
    """Words of a command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def command(*words: bytes) -> bytes:
    """A whole command."""
    return b"*%d\r\n" % len(words) + bulks(*words)


def fields_of(reply: Reply) -> dict[bytes, bytes]:
    """The fields of a hash, from a reply that lists names and values in turn; empty where there is no such hash."""
    if not isinstance(reply, list):
        return {}
    words = [word for word in reply if isinstance(word, bytes)]
    return dict(zip(words[::2], words[1::2], strict=True)) if len(words) == len(reply) else {}


def words_in(reply: Reply) -> list[bytes]:
    """The words of a reply that is a list of words; empty where it is none."""
    return [word for word in reply if isinstance(word, bytes)] if isinstance(reply, list) else []


def text(word: Reply) -> str:
    """A word as text; what is no text shows as it is."""
    return word.decode(errors="backslashreplace") if isinstance(word, bytes) else repr(word)
