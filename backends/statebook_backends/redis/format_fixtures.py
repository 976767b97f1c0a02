"""Keys of a namespace as fixtures of the format: taken from a server and planted into another one (FORMAT-4).

A record is a key: its name is `type/key`, its data the words that stand in it, one base64 a line. Seals cover names of
keys, so keys are planted as they were, into a namespace of the same name. `DUMP` is not used: what it gives belongs to
a version of the server.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

from statebook.errors import BackendUnavailable
from statebook.format_fixtures import FormatFixtures, StoredRecord
from statebook_backends.redis.client import Client
from statebook_backends.redis.errors import DriverError, Reply
from statebook_backends.redis.layout import slot_of
from statebook_backends.redis.namespaces import ask, pages_of
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.resp import command, text

_WORDS_AT_ONCE: Final = 64


def _flat(reply: Reply) -> list[bytes]:
    """All words of a reply, however deep they stand; of a stream: for each entry its id, how many words, the words."""
    if isinstance(reply, bytes):
        return [reply]
    return [word for part in reply for word in _flat(part)] if isinstance(reply, list) else []


def _entries(reply: Reply) -> list[bytes]:
    words: list[bytes] = []
    for entry in reply if isinstance(reply, list) else ():
        name, *fields = _flat(entry)
        words += [name, b"%d" % len(fields), *fields]
    return words


def _add_entries(key: bytes, words: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    commands: list[tuple[bytes, ...]] = []
    place = 0
    while place < len(words):
        end = place + 2 + int(words[place + 1])
        commands.append((b"XADD", key, words[place], *words[place + 2 : end]))
        place = end
    return commands


def _add_words(verb: bytes) -> Callable[[bytes, Sequence[bytes]], list[tuple[bytes, ...]]]:
    def commands(key: bytes, words: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        return [(verb, key, *words[start : start + _WORDS_AT_ONCE]) for start in range(0, len(words), _WORDS_AT_ONCE)]

    return commands


def _add_members(key: bytes, words: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    return [(b"ZADD", key, b"0", word) for word in words]


_TYPES: Final = {
    b"hash": ((b"HGETALL",), (), _flat, _add_words(b"HSET")),
    b"zset": ((b"ZRANGE",), (b"0", b"-1"), _flat, _add_members),
    b"list": ((b"LRANGE",), (b"0", b"-1"), _flat, _add_words(b"RPUSH")),
    b"stream": ((b"XRANGE",), (b"-", b"+"), _entries, _add_entries),
    b"string": ((b"GET",), (), _flat, _add_words(b"SET")),
}


class RedisFixtures(FormatFixtures):
    """The fixtures of the four Redis schemes."""

    bound = True

    def __init__(self, options: RedisOptions) -> None:
        """Connect.

        Args:
            options: Servers and namespace.

        Raises:
            InvalidConfiguration: The servers are not what the options say.
            BackendUnavailable: A server does not answer.
        """
        super().__init__("statebook_backends.redis")
        self._client = Client(options)

    def take(self) -> tuple[StoredRecord, ...]:
        found: list[StoredRecord] = []
        for key in sorted({key for _, page in pages_of(self._client) for key in page}):
            kind = self._run(key, (b"TYPE", key))
            if not isinstance(kind, bytes) or kind not in _TYPES:
                raise ValueError(f"{text(key)} is a {text(kind)}, which statebook does not write")
            verb, rest, words_of, _ = _TYPES[kind]
            words = words_of(self._run(key, (*verb, key, *rest)))
            data = b"\n".join(base64.b64encode(word) for word in words)
            found.append(StoredRecord(f"{kind.decode()}/{key.decode('ascii')}", data))
        return tuple(found)

    def plant(self, records: Sequence[StoredRecord]) -> None:
        for record in records:
            kind, _, name = record.name.partition("/")
            if kind.encode() not in _TYPES:
                raise ValueError(f"there is no type for the record {record.name}")
            key = name.encode("ascii")
            words = [base64.b64decode(line) for line in record.data.split(b"\n")]
            for each in _TYPES[kind.encode()][3](key, words):
                self._run(key, each)

    def close(self) -> None:
        self._client.close()

    def _run(self, key: bytes, words: Sequence[bytes]) -> Reply:
        tag = key[key.index(b"{") + 1 : key.index(b"}")]
        node = self._client.servers().node(slot_of(tag))
        (reply,) = ask(self._client, node, command(*words), 1)
        if isinstance(reply, DriverError):
            raise BackendUnavailable(f"the server refused a command: {reply}", backend=self._client.backend)
        return reply
