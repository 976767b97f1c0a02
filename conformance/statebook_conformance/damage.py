"""Damage to a medium: what can happen to stored records behind the store's back, and how to put them back."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from statebook.medium import Medium
from statebook_conformance.context import Context, NotClaimed

Snapshot: TypeAlias = Mapping[str, bytes]
"""The bytes of all records of a medium, by name."""

_VARYING: Final = re.compile(r"[0-9a-f]{4,}|[0-9]+")
_FORMAT_TEXT: Final = re.compile(rb'("statebook":|"format":)2\b')


class How(Enum):
    """What happens to a record."""

    FLIP = "one bit flipped"
    EMPTY = "cut to nothing"
    HALF = "cut in half"
    LAST = "last byte cut"
    CUT = "cut somewhere"
    REMOVE = "removed"
    SWAP = "replaced by a record of the same kind"
    FORMAT = "marked with a format of the future"


DAMAGES: Final = (How.FLIP, How.REMOVE, How.HALF, How.SWAP, How.FLIP, How.LAST, How.EMPTY)
"""What rules do to records, in turn; flips twice, because they are what digests are for."""


class Damage(msgspec.Struct, frozen=True):
    """One thing that happens to one record.

    Attributes:
        record: The record.
        how: What happens.
        before: Its bytes.
        after: Its bytes afterwards, or None where it is removed.
    """

    record: str
    how: How
    before: bytes
    after: bytes | None

    def apply(self, medium: Medium) -> bool:
        """Do it.

        Args:
            medium: The medium.

        Returns:
            False where the medium itself refuses such bytes; then nothing was done.
        """
        if self.after is None:
            medium.remove(self.record)
            return True
        try:
            medium.write(self.record, self.after)
        except ValueError:
            return False
        return True

    def __str__(self) -> str:
        """What happened, for facts."""
        return f"{self.record} {self.how.value}"


def medium_of(ctx: Context) -> Medium:
    """The medium of a rule's namespace.

    Raises:
        NotClaimed: The backend shows none.
    """
    medium = ctx.open_medium()
    if medium is None:
        raise NotClaimed("the backend shows no medium: nothing that is stored outside of the process")
    return medium


def take(medium: Medium) -> Snapshot:
    """Read all records of a medium."""
    return {record: medium.read(record) for record in medium.records()}


def restore(medium: Medium, snapshot: Snapshot) -> None:
    """Make a medium what it was: records come back, changed ones change back, others go.

    Args:
        medium: The medium.
        snapshot: What it was.
    """
    now = take(medium)
    for record in sorted(now.keys() - snapshot.keys()):
        try:
            medium.remove(record)
        except KeyError:
            continue  # gone together with another record of the same row
    for record in sorted(snapshot):
        if now.get(record) != snapshot[record]:
            medium.write(record, snapshot[record])


def changed(before: Snapshot, after: Snapshot) -> frozenset[str]:
    """The records that are new, gone or different."""
    return frozenset(record for record in before.keys() | after.keys() if before.get(record) != after.get(record))


def kind_of(record: str) -> str:
    """What a record is, as far as its name tells: records of one kind can stand in each other's place."""
    return f"{record.partition('/')[0]}/…/{_VARYING.sub('#', record.rpartition('/')[2])}"


def sample(snapshot: Snapshot, rng: random.Random, count: int) -> Iterator[Damage]:
    """Choose records of every kind, and what happens to each: seeded, with every damage in turn.

    Args:
        snapshot: All records.
        rng: The randomness.
        count: About how many.

    Yields:
        What to do, one at a time.
    """
    kinds: dict[str, list[str]] = {}
    for record in sorted(snapshot):
        kinds.setdefault(kind_of(record), []).append(record)
    each = max(1, -(-count // max(1, len(kinds))))
    turn = rng.randrange(len(DAMAGES))
    for kind in sorted(kinds):
        records = kinds[kind]
        for number in range(each):
            record = records[number % len(records)] if number < len(records) else rng.choice(records)
            damage = make(snapshot, record, DAMAGES[turn % len(DAMAGES)], rng)
            turn += 1
            if damage is not None:
                yield damage


def make(snapshot: Snapshot, record: str, how: How, rng: random.Random) -> Damage | None:
    """Make one damage.

    Args:
        snapshot: All records.
        record: The record.
        how: What happens to it.
        rng: Where a bit is flipped, and with which record this one is swapped.

    Returns:
        The damage, or None where it would change nothing.
    """
    data = snapshot[record]
    after: bytes | None = data
    if how is How.REMOVE:
        after = None
    elif how is How.FLIP and data:
        place = rng.randrange(len(data))
        after = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    elif how is How.EMPTY:
        after = b""
    elif how is How.HALF:
        after = data[: len(data) // 2]
    elif how is How.LAST:
        after = data[:-1]
    elif how is How.CUT and data:
        after = data[: rng.randrange(len(data))]
    elif how is How.SWAP:
        others = [name for name in sorted(snapshot) if name != record and kind_of(name) == kind_of(record)]
        after = snapshot[rng.choice(others)] if others else data
    elif how is How.FORMAT:
        after = b"3" if record.rpartition("/")[2] == "format" else _FORMAT_TEXT.sub(rb"\g<1>3", data, count=1)
    return None if after == data else Damage(record, how, data, after)
