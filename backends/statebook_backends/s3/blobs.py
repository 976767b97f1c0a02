"""Blobs that were read last: a page that begins in the blob where the one before ended asks for its head alone.

A blob never changes, and a head names it by its digest: what is kept is what the head means, whatever the store holds
since. Only pages are read so. Whoever checks what is stored, by `verify` or through a handle that was just opened,
reads the store.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

_BYTES_MAX: Final = 32 * 1024 * 1024


class BlobMemory:
    """Blobs by their digests, bounded in bytes. Safe from many threads."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        """Make an empty memory.

        Args:
            bytes_max: How many bytes of blobs are kept.
        """
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, sha256: str) -> bytes | None:
        """The blob of a digest, or None where it is not kept."""
        with self._lock:
            found = self._blobs.get(sha256)
            if found is not None:
                self._blobs.move_to_end(sha256)
            return found

    def keep(self, sha256: str, blob: bytes) -> None:
        """Keep a blob that was verified; those that were not read for the longest time go."""
        with self._lock:
            if sha256 not in self._blobs and len(blob) <= self._bytes_max:
                self._blobs[sha256] = blob
                self._bytes += len(blob)
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._blobs.popitem(last=False)[1])
