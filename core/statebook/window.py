"""What a store remembers of a journal's newest batches, so that an append needs no look-up in the common case.

A window holds the last `WINDOW_BATCHES` batches at least: their receipts, by batch id, and their event ids. It is valid
for exactly one chain digest: where the head's chain is another, the window is loaded again from the journal. It decides
nothing by itself: it is the evidence for `plan_append` (APPEND-1).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Final

from statebook.model import Receipt

WINDOW_BATCHES: Final = 64
"""How many of the newest batches are recognised whatever base they are sent with (APPEND-1)."""


class Window:
    """The newest batches of one journal, oldest first. Not safe from several threads: used under a store's lock.

    Attributes:
        chain: The chain digest that this window is valid for.
    """

    __slots__ = ("_batches", "_events", "chain")

    def __init__(self, chain: str, batches: Iterable[tuple[Receipt, tuple[str, ...]]] = ()) -> None:
        """Fill a window.

        Args:
            chain: The chain digest behind the last batch.
            batches: The receipts and event ids of the newest batches, oldest first.
        """
        self.chain = chain
        self._batches: dict[str, tuple[Receipt, tuple[str, ...]]] = {}
        self._events: set[str] = set()
        for receipt, event_ids in batches:
            self.push(receipt, event_ids, chain)

    @property
    def event_count(self) -> int:
        """How many event ids are held."""
        return len(self._events)

    def find(self, batch_id: str) -> Receipt | None:
        """The receipt of a batch, or None where it is not in the window."""
        entry = self._batches.get(batch_id)
        return None if entry is None else entry[0]

    def overlap(self, event_ids: tuple[str, ...]) -> str | None:
        """The first of these event ids that is in the window, or None."""
        events = self._events
        if len(event_ids) == 1:
            return event_ids[0] if event_ids[0] in events else None
        if events.isdisjoint(event_ids):
            return None
        return next(event_id for event_id in event_ids if event_id in events)

    def is_new(self, batch_id: str, event_ids: tuple[str, ...]) -> bool:
        """Tell whether neither a batch nor an event of it is in the window."""
        return batch_id not in self._batches and self._events.isdisjoint(event_ids)

    def push(self, receipt: Receipt, event_ids: tuple[str, ...], chain: str) -> None:
        """Take up a committed batch, and let go of the oldest where there are too many.

        Args:
            receipt: Its receipt.
            event_ids: The ids of its events.
            chain: The chain digest behind it.
        """
        batches, events = self._batches, self._events
        batches[receipt.batch_id] = (receipt, event_ids)
        if len(event_ids) == 1:
            events.add(event_ids[0])
        else:
            events.update(event_ids)
        self.chain = chain
        if len(batches) > WINDOW_BATCHES:
            # The oldest is the first: a dictionary keeps the order in which batches came.
            _, gone = batches.pop(next(iter(batches)))
            events.difference_update(gone)


class WindowCache:
    """Windows of the journals that were written last, by journal id. Bounded by journals and by event ids."""

    def __init__(self, journals_max: int = 1_024, events_max: int = 1_000_000) -> None:
        """Make an empty cache.

        Args:
            journals_max: How many windows are held at most.
            events_max: How many event ids are held at most in all; one window is always kept.
        """
        self._journals_max = journals_max
        self._events_max = events_max
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._lock = Lock()

    def get(self, journal_id: str, chain: str) -> Window | None:
        """The window of a journal, or None where there is none that is valid for this chain digest."""
        with self._lock:
            window = self._windows.get(journal_id)
            if window is None or window.chain != chain:
                return None
            self._windows.move_to_end(journal_id)
            return window

    def put(self, journal_id: str, window: Window) -> None:
        """Keep a window, in the place of an older one of this journal."""
        with self._lock:
            self._windows[journal_id] = window
            self._windows.move_to_end(journal_id)
            while len(self._windows) > self._journals_max:
                self._windows.popitem(last=False)
            held = sum(entry.event_count for entry in self._windows.values()) if len(self._windows) > 1 else 0
            while held > self._events_max and len(self._windows) > 1:
                _, gone = self._windows.popitem(last=False)
                held -= gone.event_count

    def drop(self, journal_id: str) -> None:
        """Forget a journal, as after an error whose effect is not known."""
        with self._lock:
            self._windows.pop(journal_id, None)
