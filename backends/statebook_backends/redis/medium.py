"""The raw records of a namespace: fields of hashes and of stream entries, items of lists, members of sets.

A record is named `kind/key/part`. Removing a field of a stream entry removes the entry, as it is lost as a whole; what
is written to it again brings it back. The numbers beside indexes hold no user's data and are no records.
"""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.errors import BackendUnavailable
from statebook.medium import Medium
from statebook_backends.redis.client import Client
from statebook_backends.redis.errors import DriverError, Reply
from statebook_backends.redis.layout import slot_of
from statebook_backends.redis.namespaces import ask, pages_of
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.resp import command, fields_of, text, words_in

_KINDS: Final = {b"d": "document", b"l": "list"}


class Piece(msgspec.Struct, frozen=True):
    """Where a record stands.

    Attributes:
        key: The key.
        type: The type of its value.
        part: The field, the place or the member; of a stream the entry's id.
        field: The field of a stream's entry.
    """

    key: bytes
    type: bytes
    part: bytes = b""
    field: bytes = b""


class RedisMedium(Medium):
    """Records of all keys of a namespace, on all masters."""

    def __init__(self, options: RedisOptions) -> None:
        """Open the medium.

        Args:
            options: Servers and namespace.

        Raises:
            InvalidConfiguration: The servers are not what the options say.
            BackendUnavailable: A server does not answer.
        """
        self._client = Client(options)
        self._pieces: dict[str, Piece] = {}
        self._standing: dict[str, bytes] = {}
        self._entries: dict[tuple[bytes, bytes], dict[bytes, bytes]] = {}

    def records(self) -> tuple[str, ...]:
        keys = {key for _, page in pages_of(self._client) for key in page if not key.endswith(b":count")}
        found: dict[str, Piece] = {}
        for key in keys:
            for piece in self._pieces_of(key):
                found[_name(piece)] = piece
        self._pieces |= found
        return tuple(sorted(found))

    def _pieces_of(self, key: bytes) -> list[Piece]:
        kind = self._run(key, b"TYPE", key)
        if kind == b"hash":
            return [Piece(key, b"hash", field) for field in words_in(self._run(key, b"HKEYS", key))]
        if kind == b"zset":
            return [Piece(key, b"zset", member) for member in words_in(self._run(key, b"ZRANGE", key, b"0", b"-1"))]
        if kind == b"list":
            length = self._run(key, b"LLEN", key)
            return [Piece(key, b"list", b"%06d" % place) for place in range(length if isinstance(length, int) else 0)]
        if kind == b"stream":
            return [
                Piece(key, b"stream", entry, field) for entry, fields in self._stream(key).items() for field in fields
            ]
        return []

    def _stream(self, key: bytes) -> dict[bytes, dict[bytes, bytes]]:
        reply = self._run(key, b"XRANGE", key, b"-", b"+")
        found: dict[bytes, dict[bytes, bytes]] = {}
        for entry in reply if isinstance(reply, list) else ():
            if isinstance(entry, list) and isinstance(entry[0], bytes):
                found[entry[0]] = fields_of(entry[1])
        return found

    def _piece(self, record: str) -> Piece:
        if record not in self._pieces:
            self.records()
        if record not in self._pieces:
            raise KeyError(record)
        return self._pieces[record]

    def read(self, record: str) -> bytes:
        piece = self._piece(record)
        key, part = piece.key, piece.part
        value: Reply
        if piece.type == b"hash":
            value = self._run(key, b"HGET", key, part)
        elif piece.type == b"list":
            value = self._run(key, b"LINDEX", key, b"%d" % int(part))
        elif piece.type == b"zset":
            value = None if self._run(key, b"ZSCORE", key, part) is None else part
        else:
            entry = self._run(key, b"XRANGE", key, part, part)
            found = entry[0] if isinstance(entry, list) and entry else None
            value = fields_of(found[1]).get(piece.field) if isinstance(found, list) else None
        if not isinstance(value, bytes):
            raise KeyError(record)
        return value

    def write(self, record: str, data: bytes) -> None:
        piece = self._piece(record)
        key, part = piece.key, piece.part
        if piece.type == b"hash":
            self._change(key, b"HSET", key, part, data)
        elif piece.type == b"zset":
            self._write_member(record, key, part, data)
        elif piece.type == b"list":
            self._write_item(key, int(part), data)
        else:
            entries = self._stream(key)
            row = entries.get(part) or self._entries.get((key, part), {})
            entries[part] = {**row, piece.field: data}
            self._rebuild(key, entries)

    def _write_member(self, record: str, key: bytes, part: bytes, data: bytes) -> None:
        """Put a member in the place of the one that a record is, or of what stands there since an earlier write."""
        gone = self._standing.pop(record, part)
        there = words_in(self._run(key, b"ZRANGE", key, b"0", b"-1"))
        self._change(key, b"ZREM", key, gone)
        if data != part:
            # Where another record is this member already, nothing stands in this one's place.
            self._standing[record] = b"" if data in there else data
        self._change(key, b"ZADD", key, b"0", data)

    def _write_item(self, key: bytes, place: int, data: bytes) -> None:
        items = words_in(self._run(key, b"LRANGE", key, b"0", b"-1"))
        items[place : place + 1] = [data]
        self._change(key, b"DEL", key)
        for item in items:
            self._change(key, b"RPUSH", key, item)

    def remove(self, record: str) -> None:
        piece = self._piece(record)
        key, part = piece.key, piece.part
        self.read(record)
        if piece.type == b"hash":
            self._change(key, b"HDEL", key, part)
        elif piece.type == b"zset":
            self._change(key, b"ZREM", key, part)
        elif piece.type == b"list":
            items = words_in(self._run(key, b"LRANGE", key, b"0", b"-1"))
            del items[int(part)]
            self._change(key, b"DEL", key)
            for item in items:
                self._change(key, b"RPUSH", key, item)
        else:
            entries = self._stream(key)
            self._entries[key, part] = entries.pop(part)
            self._rebuild(key, entries)

    def _rebuild(self, key: bytes, entries: dict[bytes, dict[bytes, bytes]]) -> None:
        self._change(key, b"DEL", key)
        for entry in sorted(entries, key=lambda name: int(name.partition(b"-")[0])):
            words = [word for pair in entries[entry].items() for word in pair]
            self._change(key, b"XADD", key, entry, *words)

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------------------------------------------------- commands

    def _run(self, key: bytes, *words: bytes) -> Reply:
        tag = key[key.index(b"{") + 1 : key.index(b"}")]
        node = self._client.servers().node(slot_of(tag))
        (reply,) = ask(self._client, node, command(*words), 1)
        if isinstance(reply, DriverError):
            raise BackendUnavailable(f"the server refused a command: {reply}", backend=self._client.backend)
        return reply

    def _change(self, key: bytes, *words: bytes) -> None:
        self._run(key, *words)


def _name(piece: Piece) -> str:
    key = text(piece.key)
    suffix = key.partition("}:")[2]
    kind = _KINDS.get(suffix[:1].encode() if suffix[1:2] == "/" else b"", suffix.replace(":", "-"))
    if suffix.endswith("/items"):
        kind = "items"
    part = text(piece.part).replace("/", "|")
    if piece.field:
        return f"{kind}/{key}/{part}/{text(piece.field)}"
    return f"{kind}/{key}/{part}"
