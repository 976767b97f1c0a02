"""Reads heads by one request each: a head that is known is asked for with its version, and comes only when it changed.

What is remembered answers nothing by itself: the store says each time whether it is still current (ATOM-5).
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from statebook.errors import BackendUnavailable
from statebook_backends.s3.envelope import StoredHead, decode_head
from statebook_backends.s3.names import BACKEND
from statebook_backends.s3.writers import ConditionalWriter, Unchanged

_HEADS_MAX: Final = 1_024
_BYTES_MAX: Final = 32 * 1024 * 1024


class HeadMemory:
    """Heads that were read or written last, bounded in number and bytes."""

    def __init__(self, heads_max: int = _HEADS_MAX, bytes_max: int = _BYTES_MAX) -> None:
        """Make an empty memory.

        Args:
            heads_max: How many heads are kept.
            bytes_max: How many bytes of heads are kept.
        """
        self._heads_max = heads_max
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._heads: OrderedDict[str, StoredHead] = OrderedDict()
        self._bytes = 0

    def get(self, scope: str) -> StoredHead | None:
        """The head that was kept, or None."""
        with self._lock:
            found = self._heads.get(scope)
            if found is not None:
                self._heads.move_to_end(scope)
            return found

    def keep(self, scope: str, head: StoredHead | None) -> None:
        """Keep a head in the place of the one before; None keeps nothing."""
        with self._lock:
            before = self._heads.pop(scope, None)
            if before is not None:
                self._bytes -= len(before.data)
            if head is None:
                return
            self._heads[scope] = head
            self._bytes += len(head.data)
            while len(self._heads) > self._heads_max or self._bytes > self._bytes_max:
                self._bytes -= len(self._heads.popitem(last=False)[1].data)


def read_head(writer: ConditionalWriter, memory: HeadMemory, path: str, scope: str) -> StoredHead | None:
    """Read the head of a scope as it is now (ATOM-5).

    Args:
        writer: Where to read.
        memory: What is known.
        path: The object.
        scope: The scope.

    Returns:
        The head, or None where there is none.

    Raises:
        DataError: It is damaged.
        BackendUnavailable: The store does not answer.
    """
    known = memory.get(scope)
    answer = writer.read(path, None if known is None else known.token.version)
    if isinstance(answer, Unchanged):
        if known is None:
            raise BackendUnavailable("the store says that an unknown head is unchanged", key=scope, backend=BACKEND)
        return known
    head = None if answer is None else decode_head(answer.data, answer.version, scope)
    memory.keep(scope, head)
    return head
