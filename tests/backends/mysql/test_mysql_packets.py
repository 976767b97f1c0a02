"""Answers are read from the wire as the server packs them, and what is none breaks the connection."""

from __future__ import annotations

from decimal import Decimal
from typing import NoReturn

import pytest

from statebook_backends.mysql.packets import Packets, Result

OK = b"\x00\x02\x00\x02\x00\x00\x00"
OK_AND_MORE = b"\x00\xfc\x34\x12\xfd\x01\x00\x01\x0a\x00\x00\x00"
END = b"\xfe\x00\x00\x02\x00"
END_AND_MORE = b"\xfe\x00\x00\x0a\x00"
ERROR = b"\xff\x26\x04#23000Duplicate"
LONG, TEXT, BLOB, JSON, NUMERIC = 8, 253, 252, 245, 246


class Refused(Exception):
    """The server refused."""


class Broken(Exception):
    """What came is no answer."""


class Wire:
    """Packets as they come, some bytes at a time."""

    def __init__(self, *packets: bytes, number: int = 1, gap: int = 0, piece: int = 1 << 30) -> None:
        self.data, self.at, self.piece = b"", 0, piece
        self.hopes: list[int] = []
        for turn, packet in enumerate(packets):
            parts = [packet[place : place + 0xFFFFFF] for place in range(0, len(packet) + 1, 0xFFFFFF)]
            for part in parts:
                shown = (number + (gap if turn else 0)) & 0xFF
                self.data += len(part).to_bytes(3, "little") + bytes([shown]) + part
                number += 1

    def receive(self, wanted: int, hoped: int) -> bytes:
        self.hopes.append(hoped)
        start, self.at = self.at, min(self.at + max(wanted, self.piece), len(self.data))
        if self.at < start + wanted:
            raise Broken("lost")
        return self.data[start : self.at]

    def refused(self, packet: bytes) -> NoReturn:
        raise Refused(packet)

    def broken(self, what: str) -> NoReturn:
        raise Broken(what)


def _text(data: bytes) -> bytes:
    size = len(data)
    if size < 251:
        return bytes([size]) + data
    width, mark = (2, 252) if size < 1 << 16 else (3, 253) if size < 1 << 24 else (8, 254)
    return bytes([mark]) + size.to_bytes(width, "little") + data


def _column(kind: int, charset: int = 45, name: bytes = b"c") -> bytes:
    names = b"".join(map(_text, (b"def", b"schema", b"table", b"table", name, name)))
    return (
        names + b"\x0c" + charset.to_bytes(2, "little") + b"\xff\xff\x00\x00" + bytes([kind]) + b"\x00\x00\x00\x00\x00"
    )


def _read(*packets: bytes, number: int = 1, gap: int = 0, piece: int = 1 << 30) -> list[Result]:
    wire = Wire(*packets, number=number, gap=gap, piece=piece)
    return list(Packets(wire, {NUMERIC: Decimal}).results(number))


def _counts(packets: Packets, statements: int, number: int = 1) -> list[int]:
    counts: list[int] = []
    packets.counts(counts, statements, number)
    return counts


def test_counts_and_numbers_of_several_statements() -> None:
    assert _read(OK_AND_MORE, OK_AND_MORE, OK) == [((), 0x1234, 65_537), ((), 0x1234, 65_537), ((), 2, 0)]


@pytest.mark.parametrize("piece", [1, 5, 13])
def test_counts_alone_are_read_and_the_shortest_answers_are_hoped_for(piece: int) -> None:
    wire = Wire(*(OK_AND_MORE, OK_AND_MORE, OK) * 2, *(OK_AND_MORE, ERROR), piece=piece)
    packets = Packets(wire, {})
    assert _counts(packets, 3) == [0x1234, 0x1234, 2]
    whole = 2 * (4 + len(OK_AND_MORE)) + 4 + len(OK)
    assert wire.hopes[0] == 0
    wire.data = wire.data[whole:]
    wire.at, wire.hopes = 0, []
    assert _counts(packets, 3, 4) == [0x1234, 0x1234, 2]
    assert wire.hopes[0] == whole


def test_an_error_among_counts_is_refused_behind_those_that_were_answered() -> None:
    counts: list[int] = []
    with pytest.raises(Refused, match="Duplicate"):
        Packets(Wire(OK_AND_MORE, ERROR), {}).counts(counts, 3)
    assert counts == [0x1234]
    for wrong in ((b"\x01", _column(LONG, 63), END, END), (OK_AND_MORE,), (OK_AND_MORE, b"")):
        with pytest.raises(Broken):
            Packets(Wire(*wrong), {}).counts([], 2)


@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_rows_come_in_pieces_of_any_size(piece: int) -> None:
    packets = (b"\x01", _column(BLOB, 63), END, _text(b"x" * 300), _text(b""), END)
    assert _read(*packets, piece=piece) == [(((b"x" * 300,), (b"",)), 2, 0)]


def test_values_are_decoded_by_the_types_of_their_columns() -> None:
    columns = [
        _column(LONG, 63),
        _column(TEXT),
        _column(BLOB, 63),
        _column(JSON, 63),
        _column(NUMERIC, 63),
        _column(TEXT),
    ]
    row = b"".join([*map(_text, (b"-12", "é".encode(), b"\xff\x00", b'{"a":1}', b"1.50")), b"\xfb"])
    (answer,) = _read(b"\x06", *columns, END, row, row, END)
    assert answer == (((-12, "é", b"\xff\x00", '{"a":1}', Decimal("1.50"), None),) * 2, 2, 0)


@pytest.mark.parametrize("size", [0, 250, 251, 65_535, 65_536, 0xFFFFFF - 5, 0xFFFFFF - 4, 0xFFFFFF, 33_554_432])
def test_values_of_any_length_come_whole(size: int) -> None:
    value = b"\xfe" * size
    (answer,) = _read(b"\x01", _column(BLOB, 63), END, _text(value), END)
    assert answer == (((value,),), 1, 0)


def test_numbers_of_packets_wrap_and_results_follow_each_other() -> None:
    query = (b"\x01", _column(LONG, 63), END, *[_text(b"%d" % place) for place in range(600)], END_AND_MORE)
    first, second, last = _read(*query, *query, OK, number=250)
    assert first == second == (tuple((place,) for place in range(600)), 600, 0)
    assert last == ((), 2, 0)


def test_an_error_comes_in_its_place_and_ends_the_answers() -> None:
    packets = Packets(Wire(OK_AND_MORE, ERROR), {})
    seen: list[Result] = []
    with pytest.raises(Refused, match="Duplicate"):
        seen.extend(iter(packets.results()))
    assert len(seen) <= 1
    with pytest.raises(Refused):
        _read(b"\x01", _column(LONG, 63), END, _text(b"1"), ERROR)


@pytest.mark.parametrize(
    "packets",
    [
        (b"\xfbfile",),
        (OK_AND_MORE,),
        (OK_AND_MORE, b""),
        (b"\x01", _column(LONG, 63), OK),
        (b"\x01", _column(LONG, 63)[:-7], END, END),
        (b"\x01", b"\xfc", END, END),
        (b"\x02", _column(LONG, 63), _column(LONG, 63), END, _text(b"1"), END),
        (b"\x01", _column(LONG, 63), END, _text(b"1") + b"more", END),
        (b"\x01", _column(LONG, 63), END, b"\x09short", END),
        (b"\x01", _column(LONG, 63), END, _text(b"1")),
    ],
)
def test_what_is_no_answer_breaks_the_connection(packets: tuple[bytes, ...]) -> None:
    with pytest.raises(Broken):
        _read(*packets)


def test_a_packet_out_of_turn_breaks_the_connection() -> None:
    with pytest.raises(Broken, match="turn"):
        _read(OK_AND_MORE, OK, gap=1)
