"""What a disk does: it cuts the end off, flips a bit, brings an old copy back, and is full.

The first three happen to the records of a medium (`statebook.medium`), one record at a time; `damage` makes many other
ones. A full disk is made with the limit on the size of files, which needs no rights and holds for one process only.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from statebook.medium import Medium
from statebook_conformance.damage import Damage, How, Snapshot


def truncations(snapshot: Snapshot, record: str, *, step: int = 1) -> Iterator[Damage]:
    """Cut a record at each byte, from nothing to one byte less than all.

    Args:
        snapshot: All records.
        record: The record.
        step: How many bytes lie between two cuts.

    Yields:
        What to do, one at a time.
    """
    data = snapshot[record]
    for size in range(0, len(data), max(1, step)):
        yield Damage(record, How.EMPTY if size == 0 else How.CUT, data, data[:size])


def bit_flips(snapshot: Snapshot, record: str, rng: random.Random, *, count: int) -> Iterator[Damage]:
    """Flip one bit of a record, at different places.

    Args:
        snapshot: All records.
        record: The record.
        rng: Chooses the places.
        count: How many places at most.

    Yields:
        What to do, one at a time.
    """
    data = snapshot[record]
    for place in rng.sample(range(len(data) * 8), min(count, len(data) * 8)):
        byte, bit = divmod(place, 8)
        yield Damage(record, How.FLIP, data, data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :])


def stale_records(old: Snapshot, now: Snapshot) -> tuple[str, ...]:
    """The records that were there before and have other bytes now: those of which an old copy could come back."""
    return tuple(record for record in sorted(old.keys() & now.keys()) if old[record] != now[record])


@contextmanager
def old_copy(medium: Medium, record: str, old: Snapshot) -> Iterator[bool]:
    """Put an old copy of one record back, and the present one again afterwards.

    Args:
        medium: The medium.
        record: The record.
        old: The records as they were.

    Yields:
        Whether the medium took the old bytes.
    """
    present = medium.read(record)
    try:
        medium.write(record, old[record])
    except ValueError:
        yield False
        return
    try:
        yield True
    finally:
        medium.write(record, present)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process can be written beyond a size: what a full disk does to files that grow (`EFBIG`).

    For a process of its own, never for the one that runs tests: other files of the process meet it too.

    Args:
        size: The size, in bytes.

    Yields:
        Nothing; the limit is lifted at the end.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
