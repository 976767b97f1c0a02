"""Writers of one process that write one object take turns. That is no promise: the store's condition decides.

A store may let racing writes wait for each other by the second (SeaweedFS does), where one after the other they take
milliseconds. Who has waited for long goes ahead all the same, so that a store that does not answer delays nobody twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_PATIENCE_S: Final = 1.0


class _Turn:
    """A lock, and how many want it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0


class Turns:
    """Locks by name, which exist while somebody wants them."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """Make an empty one.

        Args:
            patience_s: How long to wait for a turn before going ahead without one.
        """
        self._patience_s = patience_s
        self._lock = Lock()
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        """Wait for a turn, not for ever, and have it for a block.

        Args:
            name: The object.

        Yields:
            Nothing.
        """
        with self._lock:
            turn = self._turns.setdefault(name, _Turn())
            turn.users += 1
        held = turn.lock.acquire(timeout=self._patience_s)
        try:
            yield
        finally:
            if held:
                turn.lock.release()
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[name]
