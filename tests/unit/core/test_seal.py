"""Sealed records: any damage is an error, never another body (FORMAT-1, FORMAT-2)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from statebook.codec import seal, unseal
from statebook.errors import DataError, JournalCorrupt, StateCorrupt, UnsupportedFormat

BODY = '{"last_seq":7,"x":"é😀"}\n'.encode()
RECORD = seal("journal-head", BODY)


@given(st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), min_size=1, max_size=20), st.binary())
def test_a_sealed_body_comes_back(kind: str, body: bytes) -> None:
    assert unseal(kind, seal(kind, body), StateCorrupt) == body


def test_every_flipped_bit_is_an_error() -> None:
    for position in range(len(RECORD)):
        for bit in range(8):
            damaged = bytearray(RECORD)
            damaged[position] ^= 1 << bit
            with pytest.raises(DataError):
                unseal("journal-head", bytes(damaged), JournalCorrupt)


def test_every_truncation_is_damage() -> None:
    for length in range(len(RECORD)):
        with pytest.raises(JournalCorrupt):
            unseal("journal-head", RECORD[:length], JournalCorrupt)


@pytest.mark.parametrize("more", [b"\n", b"\0", b"x", RECORD])
def test_a_glued_record_is_damage(more: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        unseal("journal-head", RECORD + more, JournalCorrupt)
    with pytest.raises(JournalCorrupt):
        unseal("journal-head", more + RECORD, JournalCorrupt)


def test_each_removed_byte_is_an_error() -> None:
    for position in range(len(RECORD)):
        with pytest.raises(DataError):
            unseal("journal-head", RECORD[:position] + RECORD[position + 1 :], JournalCorrupt)


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_another_format_is_unsupported_and_named(version: int) -> None:
    record = RECORD.replace(b'"statebook":2', b'"statebook":%d' % version, 1)
    with pytest.raises(UnsupportedFormat) as caught:
        unseal("journal-head", record, JournalCorrupt, "u/a/s/t")
    assert (caught.value.expected, caught.value.found, caught.value.key) == ("2", str(version), "u/a/s/t")


def test_another_format_is_known_whatever_its_other_members() -> None:
    with pytest.raises(UnsupportedFormat):
        unseal("journal-head", b'{"statebook":3,"checksum":"crc32:1"}\n...', JournalCorrupt)


def test_a_record_in_anothers_place_is_damage() -> None:
    with pytest.raises(JournalCorrupt) as caught:
        unseal("cursor", RECORD, JournalCorrupt)
    assert (caught.value.expected, caught.value.found) == ("cursor", "journal-head")


def test_damage_is_of_the_class_that_was_asked_for() -> None:
    for error in (JournalCorrupt, StateCorrupt):
        with pytest.raises(error) as caught:
            unseal("journal-head", RECORD[:-1], error, "k")
        assert caught.value.key == "k"
        assert caught.value.what == "journal-head"
