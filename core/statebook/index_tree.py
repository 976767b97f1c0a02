"""The tree of immutable blobs under a head: segments, and references to them in levels (HEAD-3, HEAD-5).

A head holds levels of references, the newest in level 0. A reference of level 0 names a segment; one of level n + 1
names an index blob that holds references of level n, one a line. Positions are contiguous: the highest level holds the
oldest, level 0 the newest, and behind it comes the inline tail. Journals count their events so, lists their items.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from statebook.at_once import at_once
from statebook.atomic import AtomicJournalStorage
from statebook.codec import digest
from statebook.errors import DataError


class Reference(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a head or an index blob knows of a blob (HEAD-3). Stored as an array: a head holds up to 64 a level.

    Attributes:
        first: The first position in it.
        last: The last position in it.
        name: The blob's name; it begins with the generation that it was built on (HEAD-4).
        bytes: The blob's length.
        sha256: The blob's digest, in hex.
    """

    first: int
    last: int
    name: str
    bytes: int
    sha256: str


_AHEAD_BYTES_MAX: Final = 2_097_152
_SMALL: Final = 8

Levels: TypeAlias = tuple[tuple[Reference, ...], ...]


class Shape(msgspec.Struct, frozen=True):
    """The bounds of a head (HEAD-5).

    Attributes:
        tail_bytes_max: The longest inline tail.
        references_max: The most references of a level.
        small_tail_bytes_max: The longest inline tail where what comes to it is small, at most an eighth of this; None:
            the same as for all. For storages to which each byte of a head costs time: they write all of it anew with
            each commit, so that a shorter tail saves more than twice as many segments take.
    """

    tail_bytes_max: int = 64 * 1024
    references_max: int = 64
    small_tail_bytes_max: int | None = None

    def tail_bytes(self, line: int) -> int:
        """The longest tail that a line of so many bytes may be put behind."""
        small = self.small_tail_bytes_max
        return self.tail_bytes_max if small is None or line * _SMALL > small else small


SHAPE: Final = Shape()
"""The bounds that the contract sets."""


class BlobMissing(Exception):
    """A referenced blob is not there: taken away by a trim or a replacement beside us, or lost (LIFE-4).

    Whoever meets it reads the head again, and calls it damage where the blob is missing under that head too.

    Attributes:
        reference: The reference to it.
    """

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference.name)
        self.reference = reference


def lost(missing: BlobMissing, error: type[DataError], key: str) -> DataError:
    """The error for a blob that is missing though the newest head refers to it (FORMAT-1)."""
    reference = missing.reference
    return error(
        f"the blob {reference.name} is missing though the head refers to it",
        what="segment",
        expected=f"{reference.bytes} bytes for {reference.first} to {reference.last}",
        found="no blob",
        key=key,
    )


def blob_name(generation: int, nonce: str) -> str:
    """The name of a blob that is built on a head of this generation (HEAD-4)."""
    return f"{generation:016x}-{nonce[:16]}"


def name_generation(name: str) -> int | None:
    """The generation that a blob was built on, or None where the name is not one of ours."""
    head, dash, nonce = name.partition("-")
    if len(head) != 16 or not dash or not nonce:
        return None
    try:
        return int(head, 16)
    except ValueError:
        return None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reference)


def refer(first: int, last: int, name: str, blob: bytes) -> Reference:
    """The reference to a blob."""
    return Reference(first, last, name, len(blob), digest(blob))


def grown(
    levels: Levels, reference: Reference, shape: Shape, new_name: Callable[[], str]
) -> tuple[Levels, dict[str, bytes]]:
    """Put one more segment behind the others, and fold full levels into index blobs (HEAD-5).

    Args:
        levels: The levels as they are.
        reference: The new segment.
        shape: The bounds.
        new_name: Makes the name of an index blob.

    Returns:
        The new levels, and the index blobs to write with them.
    """
    rows = list(levels)
    blobs: dict[str, bytes] = {}
    for level in range(len(rows) + 1):
        row = (*(rows[level] if level < len(rows) else ()), reference)
        split = shape.references_max if len(row) > shape.references_max else 0
        folded, row = row[:split], row[split:]
        rows[level:] = [row, *rows[level + 1 :]]
        if not folded:
            break
        body = _encoder.encode_lines(folded)
        reference = refer(folded[0].first, folded[-1].last, new_name(), body)
        blobs[reference.name] = body
    return tuple(rows), blobs


def dropped(levels: Levels, low: int) -> Levels:
    """The levels without the references that lie wholly before a position."""
    rows = [tuple([reference for reference in row if reference.last >= low]) for row in levels]
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


class TreeReader:
    """Reads the tree of one scope, and verifies each blob's length and digest (HEAD-3). For one call: it remembers."""

    def __init__(self, storage: AtomicJournalStorage, scope: str, error: type[DataError], key: str) -> None:
        """Read a scope.

        Args:
            storage: The storage.
            scope: The scope.
            error: The class for damage.
            key: What the scope belongs to, for errors.
        """
        self._storage = storage
        self._scope = scope
        self._error = error
        self._key = key
        self._children: dict[str, tuple[Reference, ...]] = {}

    def fetch(self, reference: Reference) -> bytes:
        """Read a blob and hold it against its reference.

        Raises:
            BlobMissing: It is not there.
            DataError: Its length or digest is another one.
        """
        blob = self._storage.read_blob(self._scope, reference.name)
        if blob is None:
            raise BlobMissing(reference)
        if len(blob) != reference.bytes:
            raise self.damaged(f"blob {reference.name}", f"{reference.bytes} bytes", f"{len(blob)} bytes")
        found = digest(blob)
        if found != reference.sha256:
            raise self.damaged(f"blob {reference.name}", reference.sha256, found)
        return blob

    def fetch_ahead(self, references: Iterator[Reference]) -> Iterator[tuple[Reference, bytes]]:
        """Read blobs in order, several at once where the storage serves them so, a few megabytes ahead at most.

        Raises:
            BlobMissing: One is not there.
            DataError: Length or digest of one is another one.
        """
        width = max(1, self._storage.requests_at_once)
        for first in references:
            ahead, size = [first], first.bytes
            while len(ahead) < width and size < _AHEAD_BYTES_MAX:
                reference = next(references, None)
                if reference is None:
                    break
                ahead.append(reference)
                size += reference.bytes
            yield from zip(ahead, at_once(width, self.fetch, ahead), strict=True)

    def children(self, reference: Reference) -> tuple[Reference, ...]:
        """The references in an index blob, checked to cover exactly what the reference says."""
        known = self._children.get(reference.name)
        if known is not None:
            return known
        try:
            references = tuple(_decoder.decode_lines(self.fetch(reference)))
        except msgspec.DecodeError as cause:
            raise self.damaged(f"index {reference.name}", "references", "something else") from cause
        at = reference.first
        for child in references:
            if child.first != at or child.last < child.first:
                raise self.damaged(f"index {reference.name}", f"a reference from {at}", f"one from {child.first}")
            at = child.last + 1
        if at != reference.last + 1:
            raise self.damaged(f"index {reference.name}", f"the end {reference.last}", f"the end {at - 1}")
        self._children[reference.name] = references
        return references

    def segments(self, levels: Levels, low: int) -> Iterator[Reference]:
        """The references to segments that end at a position or behind it, ascending; reads only what it must."""
        for level in range(len(levels) - 1, -1, -1):
            yield from self._below(levels[level], level, low)

    def _below(self, row: tuple[Reference, ...], level: int, low: int) -> Iterator[Reference]:
        for reference in row[bisect_left(row, low, key=_last) :]:
            if level == 0:
                yield reference
            else:
                yield from self._below(self.children(reference), level - 1, low)

    def segments_back(self, levels: Levels, low: int) -> Iterator[Reference]:
        """The same, descending."""
        for level, row in enumerate(levels):
            yield from self._below_back(row, level, low)

    def _below_back(self, row: tuple[Reference, ...], level: int, low: int) -> Iterator[Reference]:
        for reference in reversed(row[bisect_left(row, low, key=_last) :]):
            if level == 0:
                yield reference
            else:
                yield from self._below_back(self.children(reference), level - 1, low)

    def names(self, levels: Levels, low: int) -> Iterator[str]:
        """The names of all blobs that a head refers to, index blobs too; what lies before a position is not counted."""
        for level, row in enumerate(levels):
            yield from self._names_below(row, level, low)

    def _names_below(self, row: tuple[Reference, ...], level: int, low: int) -> Iterator[str]:
        for reference in row[bisect_left(row, low, key=_last) :]:
            yield reference.name
            if level:
                yield from self._names_below(self.children(reference), level - 1, low)

    def damaged(self, what: str, expected: str, found: str) -> DataError:
        """The error for content that is not what its reference says (FORMAT-1)."""
        return self._error(
            f"the {what} is damaged", what=what.partition(" ")[0], expected=expected, found=found, key=self._key
        )


def _last(reference: Reference) -> int:
    return reference.last
