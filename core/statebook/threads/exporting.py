"""The exporter's core, sans I/O: which pages to read, what to deliver, and how far the cursor may move (CURSOR-4).

A drain is a generator of steps. A driver carries out each step and puts the answer into it; an error of a step is
thrown into the generator. The blocking and the asyncio exporter differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias, TypeVar

import msgspec

from statebook.errors import (
    BackendUnavailable,
    CursorFenced,
    InvalidValue,
    JournalCorrupt,
    OutcomeUnknown,
    Retry,
    StatebookError,
)
from statebook.keys import ThreadKey
from statebook.model import EventPage, ExportCursor, RecordedEvent, check_page
from statebook.patience import Patience

V = TypeVar("V")


class Delivery(msgspec.Struct, frozen=True):
    """Events of one journal, for a sink.

    Attributes:
        key: The thread.
        journal_id: The incarnation: event ids are unique, and seqs grow, within it.
        events: Ascending and contiguous; at least one.
    """

    key: ThreadKey
    journal_id: str
    events: tuple[RecordedEvent, ...]

    @property
    def last_seq(self) -> int:
        """The seq of the last event: what a sink acknowledges that has taken everything durably."""
        return self.events[-1].seq


class SkippedEvent(msgspec.Struct, frozen=True):
    """The record of an event that was left out of an export, on purpose.

    Attributes:
        key: The thread.
        journal_id: The incarnation.
        exporter: The exporter's name.
        seq: The event's seq.
        event_id: Its id.
        type: Its type.
        reason: Why, in the words of whoever decided it.
        skipped_at: Unix time in milliseconds.
    """

    key: ThreadKey
    journal_id: str
    exporter: str
    seq: int
    event_id: str
    type: str
    reason: str
    skipped_at: int


class DrainReport(msgspec.Struct, frozen=True):
    """What a drain did.

    Attributes:
        delivered: How many events were handed to the sink, those included that it had seen before.
        acked_seq: Where the cursor stands.
        last_seq: The journal's last seq when the drain began.
    """

    delivered: int
    acked_seq: int
    last_seq: int

    @property
    def complete(self) -> bool:
        """Whether everything that was there when the drain began is acknowledged."""
        return self.acked_seq >= self.last_seq


class Open(msgspec.Struct):
    """Open the cursor; the answer is `cursor`."""

    cursor: ExportCursor | None = None


class Read(msgspec.Struct):
    """Read a page; the answer is `page`."""

    after: int
    limit: int
    page: EventPage | None = None


class Deliver(msgspec.Struct):
    """Hand events to the sink; the answer is `acked`."""

    delivery: Delivery
    acked: int = -1


class Record(msgspec.Struct):
    """Have the sink record a skip."""

    skipped: SkippedEvent


class Advance(msgspec.Struct):
    """Advance the cursor; the answer is the new `cursor`."""

    cursor: ExportCursor
    to_seq: int


class Pause(msgspec.Struct):
    """Wait; the answer is whether the export was told to stop."""

    seconds: float
    stopped: bool = False


Step: TypeAlias = Open | Read | Deliver | Record | Advance | Pause


def never() -> bool:
    """Not told to stop."""
    return False


class ExportCore:
    """One exporter of one thread. Its driver lets one drain run at a time.

    Guarantees CURSOR-4: events are delivered in order, at least once, from the cursor on; the cursor moves only to what
    the sink has acknowledged, contiguously; a failure moves nothing, and the next drain delivers again. CURSOR-2: once
    fenced it delivers nothing more until it is opened again on purpose. An advance of unknown outcome is sent again
    before anything else.
    """

    def __init__(self, key: ThreadKey, exporter: str, *, page: int, patience: Patience) -> None:
        """Make a core. No I/O.

        Raises:
            ValueError: The page is outside its range.
        """
        check_page(page)
        self.key = key
        self.exporter = exporter
        self.cursor: ExportCursor | None = None
        self._page = page
        self._patience = patience
        self._sent_to: int | None = None
        self._fenced: CursorFenced | None = None

    @property
    def acked_seq(self) -> int | None:
        """Where the cursor is known to stand, or None before it was opened."""
        return None if self.cursor is None else self.cursor.acked_seq

    def opened(self, cursor: ExportCursor) -> None:
        """Go on with a cursor that was opened or reset on purpose."""
        self.cursor, self._sent_to, self._fenced = cursor, None, None

    # -------------------------------------------------------------------------------------------------------- steps

    def open(self) -> Generator[Step, None, ExportCursor]:
        """Open the cursor, and fence its earlier opener; a lost reply is sent again, which is harmless."""
        error: StatebookError | None = None
        for pause in self._patience.pauses():
            yield from self._wait(pause)
            step = Open()
            try:
                yield step
            except (OutcomeUnknown, BackendUnavailable) as failure:
                error = failure
            else:
                cursor = answered(step.cursor)
                self.opened(cursor)
                return cursor
        raise error or AssertionError("there was at least one attempt")

    def drain(self, stopped: Callable[[], bool] = never) -> Generator[Step, None, DrainReport]:
        """Deliver and acknowledge what is there now."""
        cursor = yield from self._current()
        position, end, delivered = cursor.acked_seq, -1, 0
        while True:
            read = Read(position, self._page)
            yield read
            page = answered(read.page)
            end = page.last_seq if end < 0 else end
            events = tuple(event for event in page.events if event.seq <= end)
            if not events:
                break
            self._check_order(events, position)
            step = Deliver(Delivery(self.key, cursor.journal_id, events))
            yield step
            delivered += len(events)
            position = events[-1].seq
            acked = self._check_acked(step.acked, position)
            if acked > cursor.acked_seq:
                cursor = yield from self._advance(acked)
            if position >= end or stopped():
                break
        return DrainReport(delivered, cursor.acked_seq, end)

    def follow(self, poll_s: float, stopped: Callable[[], bool]) -> Generator[Step, None, None]:
        """Drain again and again; failures that may pass are borne as long as patience lasts without progress."""
        pauses: Iterator[float] | None = None
        reached = self.acked_seq
        while not stopped():
            pause = poll_s
            try:
                yield from self.drain(stopped)
                pauses = None
            except StatebookError as error:
                if error.retry not in (Retry.BACKOFF, Retry.SETTLE):
                    raise
                if pauses is None or self.acked_seq != reached:
                    pauses = self._patience.pauses()
                    next(pauses)
                patience = next(pauses, None)
                if patience is None:
                    raise
                pause = patience
            reached = self.acked_seq
            step = Pause(pause)
            yield step
            if step.stopped:
                return

    def skip(self, seq: int, reason: str, skipped_at: int) -> Generator[Step, None, SkippedEvent]:
        """Leave out the next event: the sink records it first, then the cursor moves over it."""
        if type(reason) is not str or not reason.strip():
            raise InvalidValue("a skip needs a reason: it is recorded", key=self.key.name)
        cursor = yield from self._current()
        if seq != cursor.acked_seq + 1:
            raise ValueError(f"only the next event can be skipped: seq {cursor.acked_seq + 1}, not {seq!r}")
        read = Read(cursor.acked_seq, 1)
        yield read
        events = answered(read.page).events
        if not events:
            raise ValueError(f"there is no event at seq {seq} to skip")
        event = events[0]
        skipped = SkippedEvent(
            self.key, cursor.journal_id, self.exporter, event.seq, event.event_id, event.type, reason, skipped_at
        )
        yield Record(skipped)
        yield from self._advance(seq)
        return skipped

    # ----------------------------------------------------------------------------------------------------- internal

    def _current(self) -> Generator[Step, None, ExportCursor]:
        if self._fenced is not None:
            raise CursorFenced(
                "a newer opener has this cursor; nothing is delivered until this exporter is opened again on purpose",
                current_epoch=self._fenced.current_epoch,
                key=self.key.name,
            ) from self._fenced
        if self.cursor is None:
            return (yield from self.open())
        if self._sent_to is not None:
            return (yield from self._advance(self._sent_to))
        return self.cursor

    def _advance(self, to_seq: int) -> Generator[Step, None, ExportCursor]:
        error: StatebookError | None = None
        for pause in self._patience.pauses():
            yield from self._wait(pause)
            step = Advance(answered(self.cursor), to_seq)
            self._sent_to = to_seq
            try:
                yield step
            except OutcomeUnknown as failure:
                error = failure
            except BackendUnavailable as failure:
                error = error or failure
            except CursorFenced as failure:
                self._fenced = failure
                raise
            else:
                self.cursor, self._sent_to = step.cursor, None
                return step.cursor
        raise error or AssertionError("there was at least one attempt")

    def _wait(self, pause: float) -> Generator[Step, None, None]:
        if pause > 0:
            yield Pause(pause)

    def _check_order(self, events: tuple[RecordedEvent, ...], position: int) -> None:
        for seq, event in enumerate(events, position + 1):
            if event.seq != seq:
                raise JournalCorrupt(
                    "a page has a hole", what="page", expected=str(seq), found=str(event.seq), key=self.key.name
                )

    def _check_acked(self, acked: int, delivered: int) -> int:
        reached = answered(self.cursor).acked_seq
        if type(acked) is not int or not reached <= acked <= delivered:
            raise InvalidValue(
                f"the sink acknowledged {acked!r}, which is not between {reached} and {delivered}; nothing was moved",
                key=self.key.name,
            )
        return acked


def answered(value: V | None) -> V:
    """The answer that the driver put into a step."""
    assert value is not None, "the driver answers each step"
    return value
