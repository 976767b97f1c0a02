"""Exporters that record what they do in the words of the cursor checker, in this and in other processes."""

from __future__ import annotations

import random
import time
from typing import Final

from statebook.errors import CursorFenced, CursorRegression, JournalRegressed
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import ExportCursor
from statebook_conformance.checkers.history import JsonValue
from statebook_conformance.checkers.recorder import Recorder

_PAUSE_S_MAX: Final = 0.002
"""The longest pause between a delivery and its acknowledgement, so that others come between the two."""

_REFUSALS: Final = (CursorFenced, CursorRegression, JournalRegressed)


class Exporter:
    """One sequential exporter: opens a cursor, delivers what is pending to a sink of its own, acknowledges.

    Attributes:
        cursor: The cursor as it was opened or advanced last, or None.
        delivered: The event ids that the sink has taken, in order.
        fenced: How often a newer opener was met.
    """

    def __init__(
        self, journal: ThreadJournalStore, key: ThreadKey, exporter: str, recorder: Recorder, name: str
    ) -> None:
        """Make an exporter.

        Args:
            journal: A handle.
            key: The thread.
            exporter: The cursor's name.
            recorder: Where operations are recorded.
            name: The sequential client's name in the history.
        """
        self._journal, self._key, self._exporter = journal, key, exporter
        self._recorder, self._name = recorder, name
        self.cursor: ExportCursor | None = None
        self.delivered: list[str] = []
        self.fenced = 0

    def open(self) -> ExportCursor:
        """Open the cursor, and fence whoever had it."""
        with self._recorder.operation(self._name, "open", self._exporter) as pending:
            cursor = self.cursor = self._journal.open_cursor(self._key, self._exporter)
            pending.ok({"epoch": cursor.epoch, "acked": cursor.acked_seq})
        return cursor

    def deliver(self, limit: int, *, take: int) -> int | None:
        """Read a page behind the cursor and deliver the first events of it.

        Args:
            limit: The page size.
            take: How many events the sink takes before it fails.

        Returns:
            The highest seq that it took, or None where it took none.
        """
        cursor = self.cursor or self.open()
        last: int | None = None
        for event in self._journal.read_after(self._key, cursor.acked_seq, limit).events[:take]:
            what: dict[str, JsonValue] = {"epoch": cursor.epoch, "seq": event.seq, "event": event.event_id}
            with self._recorder.operation(self._name, "deliver", self._exporter, what) as pending:
                self.delivered.append(event.event_id)
                pending.ok()
            last = event.seq
        return last

    def acknowledge(self, seq: int) -> bool:
        """Advance the cursor.

        Returns:
            False where a newer opener has it; the next `open` takes it back.
        """
        cursor = self.cursor or self.open()
        what: dict[str, JsonValue] = {"epoch": cursor.epoch, "to": seq}
        with self._recorder.operation(self._name, "advance", self._exporter, what) as pending:
            try:
                self.cursor = self._journal.advance_cursor(cursor, seq)
            except _REFUSALS as error:
                pending.refused(type(error).__name__)
                self.cursor = None
                self.fenced += isinstance(error, CursorFenced)
                return False
            pending.ok()
        return True

    def ended(self) -> int:
        """Record where the journal ends."""
        with self._recorder.operation(self._name, "end", self._exporter) as pending:
            head = self._journal.head(self._key)
            last_seq = 0 if head is None else head.last_seq
            pending.ok({"last_seq": last_seq})
        return last_seq


def race(exporter: Exporter, rng: random.Random, rounds: int) -> None:
    """Open, deliver a little, acknowledge some of it, and again: what two exporters do that do not know each other.

    Args:
        exporter: The exporter.
        rng: The randomness.
        rounds: How often.
    """
    for _ in range(rounds):
        if exporter.cursor is None or rng.random() < 0.1:
            exporter.open()
        took = exporter.deliver(3, take=rng.randint(1, 3))
        if rng.random() < 0.4:
            time.sleep(rng.random() * _PAUSE_S_MAX)
        if took is not None and exporter.acknowledge(took):
            exporter.ended()
