"""Sealed records that are known to be whole, so that a storage need not hash them once more."""

from __future__ import annotations

from statebook.codec import seal


class SealedRecord(bytes):
    """What `codec.seal` has just made, byte for byte: its first line holds the length and the digest of the rest.

    A storage that keeps a digest of its own beside a record may let that line speak for the rest: who has verified the
    line can verify the rest by it (FORMAT-1). Slices and sums of it are plain bytes, of which nothing is known.
    """

    __slots__ = ()


def sealed(kind: str, body: bytes) -> SealedRecord:
    """Put a body under a header line; see `codec.seal`."""
    return SealedRecord(seal(kind, body))
