"""ThreadCursor: the handle of one export cursor of one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Lock

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import ExportCursor, RecordedEvent
from statebook.pages import iterate
from statebook.patience import PATIENCE, Patience


class ThreadCursor:
    """One opened export cursor: what is pending, and what is acknowledged. Safe from many threads.

    Delivery is at least once, in order; the receiver deduplicates by event id (CURSOR-4). A newer opener of the same
    exporter fences this one (CURSOR-2).
    """

    def __init__(
        self,
        store: ThreadJournalStore,
        cursor: ExportCursor,
        *,
        sleep: Callable[[float], None] = time.sleep,
        patience: Patience = PATIENCE,
    ) -> None:
        """Make a handle of an opened cursor. No I/O.

        Args:
            store: An open store.
            cursor: What `open_cursor` or `reset_cursor` returned.
            sleep: Waits so many seconds before an acknowledgement is sent again.
            patience: How often and how patiently.
        """
        self._store = store
        self._cursor = cursor
        self._sleep = sleep
        self._patience = patience
        self._lock = Lock()

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        return self._cursor.key

    @property
    def exporter(self) -> str:
        """The exporter's name."""
        return self._cursor.exporter

    @property
    def acked_seq(self) -> int:
        """Everything up to this seq is acknowledged."""
        return self._cursor.acked_seq

    @property
    def opened(self) -> ExportCursor:
        """The cursor as it was opened or last advanced, for calls to the store."""
        return self._cursor

    def pending(self, *, page: int = 1_000) -> Iterator[RecordedEvent]:
        """Iterate over the events behind the acknowledged seq, up to the end as it is now. Moves nothing.

        Guarantees CURSOR-4: in order, nothing left out. What is not acknowledged is given again next time.

        Args:
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The events, ascending and contiguous.

        Raises:
            ValueError: `page` is outside its range.
            JournalRegressed: The cursor is ahead of the journal; raised where the iteration meets it.
            Trimmed: Pending events have been trimmed away; raised where the iteration meets it.
        """
        return iterate(self._store, self._cursor.key, self._cursor.acked_seq, page)

    def ack(self, seq: int) -> None:
        """Acknowledge everything up to a seq: call it when the receiver has all of it.

        Guarantees CURSOR-3: only forward, never past the end. A lost reply is sent again a bounded number of times,
        which is harmless.

        Args:
            seq: The highest seq up to which nothing is missing at the receiver.

        Raises:
            ValueError: `seq` is no integer of at least 0.
            CursorFenced: A newer opener or a reset has this cursor.
            CursorRegression: `seq` is before the acknowledged one.
            JournalRegressed: `seq` is behind the end of the journal.
            Trimmed: The acknowledged seq is before the first event.
            CursorInvalid: The cursor belongs to another incarnation of the journal.
            JournalNotFound: There is no journal.
            BackendUnavailable: The cursor did not move.
            OutcomeUnknown: It may have moved; acknowledge again.
        """
        with self._lock:
            unknown: OutcomeUnknown | None = None
            refused: StatebookError | None = None
            for pause in self._patience.pauses():
                if pause > 0:
                    self._sleep(pause)
                try:
                    self._cursor = self._store.advance_cursor(self._cursor, seq)
                except OutcomeUnknown as error:
                    unknown = error
                except BackendUnavailable as error:
                    refused = error
                else:
                    return
            raise unknown or refused or AssertionError("there was at least one attempt")
