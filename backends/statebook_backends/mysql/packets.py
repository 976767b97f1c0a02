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
_SHAPES_MAX: Final = 1_024


class Driver(Protocol):
    """What is used of the driver's connection."""

    def receive(self, wanted: int, hoped: int) -> bytes:
        """What has come, at least so many bytes, or the error for a lost connection; see `Packets.counts`."""
        ...

    def refused(self, packet: bytes) -> NoReturn:
        """Raise the error that the server answered."""
        ...

    def broken(self, what: str) -> NoReturn:
        """Close the connection, and raise the error for a lost one: what came is no answer."""
        ...


class Packets:
    """Reads answers. Remembers how columns are decoded, which the server describes anew with each result.

    Attributes:
        status: What the server said last of its session, as the protocol's flags.
    """

    def __init__(self, driver: Driver, others: Mapping[int, Callable[[str], object]]) -> None:
        """Read from a connection.

        Args:
            driver: The connection.
            others: Decodes, by the number of the type, what is neither text nor an integer.
        """
        self.status = 0
        self._driver = driver
        self._others = others
        self._number = 0
        self._data = b""
        self._at = 0
        self._columns: dict[bytes, _Decode] = {}
        self._shortest: dict[int, int] = {}

    def results(self, number: int = 1) -> Iterator[Result]:
        """Read the answers to one request, one by one.

        Args:
            number: The number that the first packet must have.

        Yields:
            As many as there were statements.

        Raises:
            Exception: What the driver raises: a statement was refused, or the connection broke.
        """
        self._data, self._at, self._number = b"", 0, number
        while True:
            packet = self._packet()
            kind = packet[0]
            if kind == _OK:
                count, at = self._length(packet, 1)
                insert_id, at = self._length(packet, at)
                self.status = packet[at]
                yield (), count, insert_id
            elif kind == _ERROR:
                self._driver.refused(packet)
            elif kind == _NULL:
                self._driver.broken("a request for a local file")
            else:
                rows, self.status = self._rows(self._length(packet, 0)[0])
                yield rows, len(rows), 0
            if not self.status & _MORE_FOLLOWS:
                return

    def counts(self, counts: list[int], statements: int, number: int = 1) -> None:
        """Read the answers to changes, which say no more than how many rows each has met.

        The server sends each answer by itself, and to be woken for each costs more than to read it: it is waited a
        moment for as many bytes as so many answers had before, at least.

        Args:
            counts: Gets them, one by one.
            statements: How many statements were sent.
            number: The number that the first packet must have.

        Raises:
            Exception: As `results`.
        """
        hoped = self._shortest.get(statements, 0)
        self._data = self._driver.receive(1, hoped)
        self._at, self._number = 0, number
        size = 0
        while True:
            packet = self._packet()
            if packet[0] != _OK:
                if packet[0] == _ERROR:
                    self._driver.refused(packet)
                self._driver.broken("rows where there are none")
            if packet[1] < _NULL and packet[2] == 0:
                count, at = packet[1], 3
            else:
                count, at = self._length(packet, 1)
                _, at = self._length(packet, at)
            self.status = packet[at]
            counts.append(count)
            size += 4 + len(packet)
            if not self.status & _MORE_FOLLOWS:
                break
        if size < hoped or not hoped:
            if len(self._shortest) >= _SHAPES_MAX:
                self._shortest.clear()
            self._shortest[statements] = size

    def _packet(self) -> bytes:
        packet = self._part()
        if len(packet) == _PACKET_MAX:
            parts = [packet]
            while len(parts[-1]) == _PACKET_MAX:
                parts.append(self._part())
            return b"".join(parts)
        if not packet:
            self._driver.broken("an empty packet")
        return packet

    def _part(self) -> bytes:
        data, at = self._data, self._at
        if len(data) < at + 4:
            data, at = self._more(4), 0
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        if data[at + 3] != self._number:
            self._driver.broken("a packet out of turn")
        self._number = (self._number + 1) & 0xFF
        end = at + 4 + size
        if len(data) < end:
            data, at, end = self._more(4 + size), 0, 4 + size
        self._at = end
        return data[at + 4 : end]

    def _more(self, size: int) -> bytes:
        """Begin what was received with what is left of it, and receive until there are so many bytes."""
        left = self._data[self._at :]
        self._data, self._at = left + self._driver.receive(size - len(left), 0), 0
        return self._data

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
