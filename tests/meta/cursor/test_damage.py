"""What the rules of damage work with: each damage does what it says and can be undone, on a medium in a dictionary."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from statebook.medium import Medium
from statebook.plugins import load_backend
from statebook_conformance.damage import DAMAGES, Damage, How, changed, kind_of, make, restore, sample, take
from statebook_conformance.mutants.over_atomic import AtomicMedium

RECORDS = {
    "t/a/head": b'{"statebook":2,"kind":"journal-head"}\nbody of a',
    "t/b/head": b'{"statebook":2,"kind":"journal-head"}\nbody of b',
    "t/a/0000000000000001-00ff": b"segment one",
    "t/a/0000000000000002-11ee": b"segment two",
    "row/1/format": b"2",
    "row/1/count": b"12",
}


class DictMedium(Medium):
    """Records in a dictionary; a count refuses what is no number."""

    def __init__(self) -> None:
        self.kept = dict(RECORDS)

    def records(self) -> tuple[str, ...]:
        return tuple(sorted(self.kept))

    def read(self, record: str) -> bytes:
        return self.kept[record]

    def write(self, record: str, data: bytes) -> None:
        if record.endswith("/count") and not data.isdigit():
            raise ValueError(record)
        self.kept[record] = data

    def remove(self, record: str) -> None:
        del self.kept[record]

    def close(self) -> None:
        self.kept.clear()


@pytest.fixture
def medium() -> DictMedium:
    return DictMedium()


@pytest.mark.parametrize("how", list(How))
def test_each_damage_changes_its_record_alone_and_is_undone(medium: DictMedium, how: How) -> None:
    rng = random.Random(1)
    done = 0
    for record in RECORDS:
        damage = make(RECORDS, record, how, rng)
        if damage is None or not damage.apply(medium):
            continue
        done += 1
        assert changed(RECORDS, take(medium)) == {record}
        restore(medium, RECORDS)
        assert medium.kept == RECORDS
    assert done >= 2


def test_a_damage_that_would_change_nothing_is_none() -> None:
    rng = random.Random(1)
    assert make({"a": b""}, "a", How.FLIP, rng) is None
    assert make({"a": b"x"}, "a", How.SWAP, rng) is None
    assert make({"a": b"x"}, "a", How.FORMAT, rng) is None
    assert make({"a": b""}, "a", How.EMPTY, rng) is None


def test_a_flip_changes_exactly_one_bit() -> None:
    for seed in range(50):
        damage = make(RECORDS, "t/a/head", How.FLIP, random.Random(seed))
        assert damage is not None
        assert damage.after is not None
        different = [one ^ other for one, other in zip(damage.before, damage.after, strict=True) if one != other]
        assert len(different) == 1
        assert different[0].bit_count() == 1


def test_a_swap_takes_a_record_of_the_same_kind() -> None:
    damage = make(RECORDS, "t/a/0000000000000001-00ff", How.SWAP, random.Random(1))
    assert damage is not None
    assert damage.after == b"segment two"
    assert kind_of("t/a/head") == kind_of("t/b/head") != kind_of("t/a/0000000000000001-00ff")


def test_a_later_format_is_marked_in_text_and_in_columns() -> None:
    text = make(RECORDS, "t/a/head", How.FORMAT, random.Random(1))
    column = make(RECORDS, "row/1/format", How.FORMAT, random.Random(1))
    assert text is not None
    assert text.after == b'{"statebook":3,"kind":"journal-head"}\nbody of a'
    assert column is not None
    assert column.after == b"3"


def test_what_the_medium_refuses_is_not_done(medium: DictMedium) -> None:
    assert not Damage("row/1/count", How.EMPTY, b"12", b"").apply(medium)
    assert medium.kept == RECORDS


def test_a_sample_has_every_kind_and_is_the_same_for_one_seed() -> None:
    first = list(sample(RECORDS, random.Random(7), 40))
    assert first == list(sample(RECORDS, random.Random(7), 40))
    assert {kind_of(damage.record) for damage in first} == {kind_of(record) for record in RECORDS}
    assert {damage.how for damage in first} == set(DAMAGES)


def test_restoring_brings_back_removes_and_rewrites(medium: DictMedium) -> None:
    medium.remove("t/a/head")
    medium.write("t/new/head", b"new")
    medium.write("t/b/head", b"other")
    restore(medium, RECORDS)
    assert medium.kept == RECORDS


@pytest.fixture
def over_atomic() -> Iterator[AtomicMedium]:
    backend = load_backend(f"memory://damage-{random.getrandbits(64):x}")
    storage = backend.open_atomic()
    storage.commit("t/a", None, b"head", {"0000000000000001-00ff": b"one", "0000000000000002-00ff": b"two"})
    medium = AtomicMedium(backend.open_atomic())
    yield medium
    medium.close()
    storage.close()


def test_heads_and_blobs_of_an_atomic_storage_can_be_damaged_and_put_back(over_atomic: AtomicMedium) -> None:
    whole = take(over_atomic)
    assert whole == {"t/a/0000000000000001-00ff": b"one", "t/a/0000000000000002-00ff": b"two", "t/a/head": b"head"}
    for record in whole:
        over_atomic.write(record, b"damaged")
        assert over_atomic.read(record) == b"damaged"
        restore(over_atomic, whole)
        over_atomic.remove(record)
        with pytest.raises(KeyError):
            over_atomic.read(record)
        restore(over_atomic, whole)
        assert take(over_atomic) == whole
    for record in whole:
        over_atomic.remove(record)
    assert take(over_atomic) == {}
    restore(over_atomic, whole)
    assert take(over_atomic) == whole
