"""Reads the answers to a request from the wire, without the objects that the driver makes of each packet and column.

The driver connects, signs in, sends, and says what a lost connection and an error are; only the answers are read here,
since it spends 20 µs on each that says no more than OK, and 8 µs on each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn, Protocol, TypeAlias, cast

from statebook_backends.mysql.sql import Row, Value

Result: TypeAlias = "tuple[tuple[Row, ...], int, int]"
"""Rows, how many rows were met, and the number that an INSERT was given."""

_Decode: TypeAlias = "Callable[[bytes], Value] | None"

_PACKET_MAX: Final = 0xFF_FFFF
_MORE_FOLLOWS: Final = 8
_OK, _NULL, _EOF, _ERROR = 0, 0xFB, 0xFE, 0xFF
_EOF_BYTES: Final = 9
_BINARY: Final = 63
_TEXTS: Final = frozenset({15, 245, 249, 250, 251, 252, 253, 254, 255})
_JSON: Final = 245
_INTEGERS: Final = frozenset({1, 2, 3, 8, 9, 13})
_WIDTHS: Final = {252: 2, 253: 3, 254: 8}
_COLUMNS_MAX: Final = 512


class Driver(Protocol):
    """What is used of the driver's connection."""

    def first(self) -> tuple[bytes, int]:
        """The first packet of an answer, and the number that the next one must have; an error packet is raised."""
        ...

    def read(self, size: int) -> bytes:
        """So many bytes, or the error for a lost connection."""
        ...

    def refused(self, packet: bytes) -> NoReturn:
        """Raise the error that the server answered."""
        ...

    def broken(self, what: str) -> NoReturn:
        """Close the connection, and raise the error for a lost one: what came is no answer."""
        ...


class Packets:
    """Reads answers. Remembers how columns are decoded, which the server describes anew with each result."""

    def __init__(self, driver: Driver, others: Mapping[int, Callable[[str], object]]) -> None:
        """Read from a connection.

        Args:
            driver: The connection.
            others: Decodes, by the number of the type, what is neither text nor an integer.
        """
        self._driver = driver
        self._others = others
        self._read = driver.read
        self._number = 0
        self._columns: dict[bytes, _Decode] = {}

    def results(self) -> Iterator[Result]:
        """Read the answers to one request, one by one.

        Yields:
            As many as there were statements.

        Raises:
            Exception: What the driver raises: a statement was refused, or the connection broke.
        """
        packet, self._number = self._driver.first()
        while True:
            kind = packet[0]
            if kind == _OK:
                count, at = self._length(packet, 1)
                insert_id, at = self._length(packet, at)
                flags = packet[at]
                yield (), count, insert_id
            elif kind == _ERROR:
                self._driver.refused(packet)
            elif kind == _NULL:
                self._driver.broken("a request for a local file")
            else:
                rows, flags = self._rows(self._length(packet, 0)[0])
                yield rows, len(rows), 0
            if not flags & _MORE_FOLLOWS:
                return
            packet = self._packet()

    def _packet(self) -> bytes:
        parts: list[bytes] = []
        while True:
            head = self._read(4)
            if head[3] != self._number:
                self._driver.broken("a packet out of turn")
            self._number = (self._number + 1) & 0xFF
            size = head[0] | head[1] << 8 | head[2] << 16
            data = self._read(size)
            if size < _PACKET_MAX and not parts:
                if not data:
                    self._driver.broken("an empty packet")
                return data
            parts.append(data)
            if size < _PACKET_MAX:
                return b"".join(parts)

    def _rows(self, columns: int) -> tuple[tuple[Row, ...], int]:
        """The rows of a result, and the status flags behind them."""
        decoders = [self._column(self._packet()) for _ in range(columns)]
        self._end(self._packet())
        rows: list[Row] = []
        while True:
            packet = self._packet()
            if packet[0] == _EOF and len(packet) < _EOF_BYTES:
                return tuple(rows), self._end(packet)
            if packet[0] == _ERROR:
                self._driver.refused(packet)
            rows.append(self._row(packet, decoders))

    def _end(self, packet: bytes) -> int:
        if packet[0] != _EOF or len(packet) != 5:
            self._driver.broken("no end where one must be")
        return packet[3]

    def _row(self, packet: bytes, decoders: list[_Decode]) -> Row:
        row: list[Value] = []
        at = 0
        for decode in decoders:
            size = packet[at] if at < len(packet) else _ERROR
            at += 1
            if size == _NULL:
                row.append(None)
                continue
            if size > _NULL:
                size, at = self._length(packet, at - 1)
            value = packet[at : at + size]
            at += size
            if at > len(packet):
                break
            row.append(value if decode is None else decode(value))
        if at != len(packet):
            self._driver.broken("a row of another length")
        return tuple(row)

    def _length(self, packet: bytes, at: int) -> tuple[int, int]:
        """A number as the protocol packs it, and the place behind it."""
        first = packet[at] if at < len(packet) else _ERROR
        if first < _NULL:
            return first, at + 1
        width = _WIDTHS.get(first)
        if width is None:
            self._driver.broken("no number where one must be")
        end = at + 1 + width
        return int.from_bytes(packet[at + 1 : end], "little"), end

    def _column(self, packet: bytes) -> _Decode:
        try:
            return self._columns[packet]
        except KeyError:
            if len(self._columns) >= _COLUMNS_MAX:
                self._columns.clear()
        at = 0
        for _ in range(6):  # catalog, schema, table, its own name, column, its own name
            size, at = self._length(packet, at)
            at += size
        if len(packet) < at + 8:
            self._driver.broken("a column without a type")
        charset, kind = packet[at + 1] | packet[at + 2] << 8, packet[at + 7]
        self._columns[packet] = decode = self._decoder(kind, charset)
        return decode

    def _decoder(self, kind: int, charset: int) -> _Decode:
        if kind in _INTEGERS:
            return int
        if kind in _TEXTS:
            return None if charset == _BINARY and kind != _JSON else bytes.decode
        convert = cast("Callable[[str], Value] | None", self._others.get(kind))
        return bytes.decode if convert is None else lambda value: convert(value.decode("ascii"))
