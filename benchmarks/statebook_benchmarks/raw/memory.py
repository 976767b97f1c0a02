"""Memory: a dictionary of lists under a lock."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane, refused

_KEPT: Final = 2_048
"""How many batches a thread keeps: at millions of appends a second all of them would fill the machine's memory."""


class MemoryEngine(RawEngine):
    """Lists by thread, a lock, a fence."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        self.lock = Lock()
        self.heads = {thread: [1, 0] for thread in range(threads)}
        self.batches: dict[int, list[bytes]] = {thread: [] for thread in range(threads)}

    @property
    def work(self) -> str:
        """What one append does."""
        return "compare the epoch, append to a list, under a lock"

    def lane(self) -> RawLane:
        """A lane; all share the dictionary."""
        return _Lane(self)

    def destroy(self) -> None:
        """Forget everything."""
        self.batches.clear()


class _Lane(RawLane):
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def append(self, thread: int, body: bytes) -> None:
        engine = self._engine
        with engine.lock:
            head = engine.heads[thread]
            if head[0] != 1:
                raise refused()
            batches = engine.batches[thread]
            if len(batches) >= _KEPT:
                batches.clear()
            batches.append(body)
            head[1] += 1

    def append_group(self, bodies: Sequence[bytes]) -> None:
        for thread, body in enumerate(bodies):
            self.append(thread, body)

    def close(self) -> None:
        """Nothing to close."""
