"""A sorted index of storage names, for listings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Generic, TypeVar

K = TypeVar("K")


class NameIndex(Generic[K]):
    """Keys by their names, ascending. Not safe from several threads: used under a store's lock."""

    __slots__ = ("_keys", "_names")

    def __init__(self) -> None:
        """Make an empty index."""
        self._names: list[str] = []
        self._keys: dict[str, K] = {}

    def add(self, name: str, key: K) -> None:
        """Take up a key; again is harmless."""
        if name not in self._keys:
            insort(self._names, name)
        self._keys[name] = key

    def discard(self, name: str) -> None:
        """Let go of a name; an absent one is no error."""
        if self._keys.pop(name, None) is not None:
            del self._names[bisect_left(self._names, name)]

    def page(self, prefix: str, after: str | None, limit: int) -> tuple[tuple[K, ...], bool]:
        """List keys.

        Args:
            prefix: The start of their names.
            after: Only names greater than this one, which need not be there; None for all.
            limit: How many at most.

        Returns:
            The keys, ascending by name, and whether there are more.
        """
        start = bisect_left(self._names, prefix)
        if after is not None:
            start = max(start, bisect_right(self._names, after))
        found = [name for name in self._names[start : start + limit + 1] if name.startswith(prefix)]
        return tuple(self._keys[name] for name in found[:limit]), len(found) > limit
