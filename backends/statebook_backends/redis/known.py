"""What is remembered of heads between writes. Evidence only: a script compares every write with what is stored."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from statebook.contention import Rests
from statebook.model import Receipt
from statebook.records import HeadState
from statebook.window import Window
from statebook_backends.redis.layout import ThreadKeys

JOURNALS_REMEMBERED: Final = 1_024
"""How many heads are remembered at most."""

EVENTS_REMEMBERED: Final = 1_000_000
"""How many event ids are remembered at most, of all journals together."""


class KnownHead:
    """A head as it was stored when it was last met.

    Attributes:
        keys: The keys of the thread.
        fixed: The fields that appends do not change, packed.
        head: The head.
        seal: Its seal.
        window: The newest batches of this head, where they have been loaded.
    """

    __slots__ = ("fixed", "head", "keys", "seal", "window")

    def __init__(self, keys: ThreadKeys, fixed: bytes, head: HeadState, seal: bytes, window: Window | None) -> None:
        self.keys = keys
        self.fixed = fixed
        self.head = head
        self.seal = seal
        self.window = window


class HeadCache:
    """Heads by journal id. Bounded by journals and by event ids. Safe from many threads.

    Attributes:
        rests: When upkeep may write the head of a journal again, by the thread's name.
        large: Names of threads whose pages came as a few large batches when they were read last.
    """

    def __init__(self) -> None:
        """Make an empty cache."""
        self.rests = Rests()
        self.large: set[str] = set()
        self._heads: OrderedDict[str, KnownHead] = OrderedDict()
        self._lock = Lock()

    def get(self, journal_id: str) -> KnownHead | None:
        """What is remembered of a journal, or None."""
        with self._lock:
            known = self._heads.get(journal_id)
            if known is not None:
                self._heads.move_to_end(journal_id)
            return known

    def put(self, known: KnownHead) -> None:
        """Remember a head, in the place of an older one of its journal."""
        with self._lock:
            before = self._heads.get(known.head.journal_id)
            self._heads[known.head.journal_id] = known
            self._heads.move_to_end(known.head.journal_id)
            while len(self._heads) > JOURNALS_REMEMBERED:
                self._heads.popitem(last=False)
            if known.window is None or (before is not None and before.window is known.window):
                return
            held = sum(each.window.event_count for each in self._heads.values() if each.window is not None)
            while held > EVENTS_REMEMBERED and len(self._heads) > 1:
                _, gone = self._heads.popitem(last=False)
                held -= 0 if gone.window is None else gone.window.event_count

    def advance(
        self, known: KnownHead, before: HeadState, head: HeadState, seal: bytes, batch: tuple[Receipt, tuple[str, ...]]
    ) -> None:
        """Move what is remembered behind a batch that was just committed, unless another call has moved it since.

        Args:
            known: What is remembered.
            before: The head that the batch was committed on.
            head: The head now.
            seal: Its seal.
            batch: The batch's receipt and event ids.
        """
        with self._lock:
            if known.head is not before:
                return
            if known.window is not None:
                known.window.push(*batch, head.chain)
            known.head = head
            known.seal = seal

    def drop(self, journal_id: str) -> None:
        """Forget a journal."""
        with self._lock:
            self._heads.pop(journal_id, None)
