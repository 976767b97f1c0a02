"""JournalExporter: delivers a journal's events to a sink, at least once and in order, behind a fenced cursor (J16)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeVar

from statebook.aio.calls import outcome_of
from statebook.aio.journal import AsyncThreadJournalStore
from statebook.errors import OutcomeUnknown
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.lanes.pool import WorkPool
from statebook.model import ExportCursor
from statebook.patience import PATIENCE, Patience
from statebook.thread import wall_clock_ms
from statebook.threads.exporting import (
    Advance,
    Deliver,
    Delivery,
    DrainReport,
    ExportCore,
    Open,
    Pause,
    Read,
    SkippedEvent,
    Step,
)

R = TypeVar("R")
PAGE: Final = 500
"""How many events a delivery holds at most where nothing else is asked for."""


class JournalExportSink(Protocol):
    """Where an exporter delivers. It deduplicates by event id: whatever is not acknowledged comes again (CURSOR-4)."""

    def deliver(self, delivery: Delivery) -> int:
        """Take events.

        Args:
            delivery: The next events in order; after a failure or a restart, some that were delivered before.

        Returns:
            The highest seq up to which everything has been taken durably; `delivery.last_seq` for all of it. A sink
            that buffers answers less, and gets the following events nevertheless; whatever is not acknowledged at the
            end is delivered again by the next drain.

        Raises:
            BackendUnavailable: It cannot take them now; `follow` tries again.
            Exception: Anything else ends the drain. In both cases the cursor stays.
        """
        ...

    def skipped(self, skipped: SkippedEvent) -> None:
        """Record that an event is left out on purpose; the cursor moves over it only when this has returned.

        Args:
            skipped: The record. After a failure it may come again.
        """
        ...


class AsyncJournalExportSink(Protocol):
    """A `JournalExportSink` for asyncio."""

    async def deliver(self, delivery: Delivery) -> int:
        """As `JournalExportSink.deliver`."""
        ...

    async def skipped(self, skipped: SkippedEvent) -> None:
        """As `JournalExportSink.skipped`."""
        ...


class SinkInPool:
    """A blocking sink, from asyncio: its calls run in a bounded pool."""

    def __init__(self, sink: JournalExportSink, pool: WorkPool) -> None:
        """Take a sink and a pool.

        Args:
            sink: The blocking sink.
            pool: Where it runs.
        """
        self._sink = sink
        self._pool = pool

    async def deliver(self, delivery: Delivery) -> int:
        """As `JournalExportSink.deliver`."""
        return await outcome_of(self._pool.submit(lambda: self._sink.deliver(delivery)), None, OutcomeUnknown)

    async def skipped(self, skipped: SkippedEvent) -> None:
        """As `JournalExportSink.skipped`."""
        await outcome_of(self._pool.submit(lambda: self._sink.skipped(skipped)), None, OutcomeUnknown)


class JournalExporter:
    """Exports one thread to one sink, under one exporter name. Safe from many threads; drains run one at a time.

    Guarantees CURSOR-4: in order, at least once, none left out but by `skip`; the persistent cursor moves only when the
    sink has acknowledged. A failed drain can be run again, here or in another process. CURSOR-2: a newer exporter of
    the same name fences this one, which then delivers nothing more.
    """

    def __init__(
        self,
        store: ThreadJournalStore,
        key: ThreadKey,
        exporter: str,
        sink: JournalExportSink,
        *,
        page: int = PAGE,
        patience: Patience = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Make an exporter. No I/O: the first drain opens the cursor.

        Args:
            store: An open store.
            key: The thread.
            exporter: The exporter's name: which cursor.
            sink: Where to deliver.
            page: How many events a delivery holds at most, 1 to 10,000.
            patience: How often and how patiently the store, and in `follow` the sink, is tried again.
            sleep: Waits so many seconds.
            clock_ms: Unix time in milliseconds, for records of skips.

        Raises:
            ValueError: The page is outside its range.
        """
        self._store = store
        self._sink = sink
        self._sleep = sleep
        self._clock_ms = clock_ms
        self._core = ExportCore(key, exporter, page=page, patience=patience)
        self._lock = threading.Lock()

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        return self._core.key

    @property
    def exporter(self) -> str:
        """The exporter's name."""
        return self._core.exporter

    @property
    def acked_seq(self) -> int | None:
        """Where the cursor is known to stand; None before it was opened."""
        return self._core.acked_seq

    def open(self) -> ExportCursor:
        """Open the cursor, and fence its earlier opener; also the way on for an exporter that was fenced.

        Returns:
            The cursor.

        Raises:
            JournalNotFound: There is no journal.
            CursorInvalid: The stored cursor belongs to another incarnation of the journal; see `reset`.
            JournalRegressed: The stored cursor is ahead of the journal.
            Trimmed: The stored cursor is before the first event.
            BackendUnavailable: It was not opened.
            OutcomeUnknown: It may have been opened; open again.
        """
        with self._lock:
            return self._run(self._core.open(), None)

    def reset(self, to_seq: int, *, expected_version: int) -> ExportCursor:
        """Set the cursor on purpose: back, forward, or over to another incarnation; see `reset_cursor` (CURSOR-3).

        Args:
            to_seq: Everything up to this seq counts as acknowledged.
            expected_version: The version of the record as a cursor or `CursorInvalid` carried it; 0 for none.

        Returns:
            The cursor.

        Raises:
            StatebookError: As `ThreadJournalStore.reset_cursor`.
        """
        with self._lock:
            cursor = self._store.reset_cursor(
                self._core.key, self._core.exporter, to_seq, expected_version=expected_version
            )
            self._core.opened(cursor)
            return cursor

    def drain(self) -> DrainReport:
        """Deliver and acknowledge everything that is there now.

        Guarantees CURSOR-4. Ends also where a writer never does.

        Returns:
            What was done.

        Raises:
            CursorFenced: A newer opener has the cursor; this exporter stays fenced until `open`.
            InvalidValue: The sink acknowledged what it was not given; nothing moved.
            StatebookError: As `open`, `read_after` and `advance_cursor`.
            Exception: What the sink raised; the cursor stays at what was acknowledged before.
        """
        with self._lock:
            return self._run(self._core.drain(), None)

    def follow(self, stop: threading.Event, *, poll_s: float = 1.0) -> None:
        """Drain, wait, and again, until told to stop.

        Failures that may pass (`BackendUnavailable`, `OutcomeUnknown`, of the store or the sink) are borne as often as
        patience says without progress in between. Other calls of this exporter wait until it has ended.

        Args:
            stop: Set it to end; the delivery that runs is finished.
            poll_s: How long to wait for more, in seconds.

        Raises:
            CursorFenced: A newer opener has the cursor.
            StatebookError: As `drain`, when patience has ended.
            Exception: What the sink raised, where that is no such failure.
        """
        with self._lock:
            self._run(self._core.follow(poll_s, stop.is_set), stop)

    def skip(self, seq: int, reason: str) -> SkippedEvent:
        """Leave out the next event for good, as when a sink can never take it.

        Guarantees CURSOR-4: explicit, and recorded by the sink before the cursor moves.

        Args:
            seq: Its seq: the one behind `acked_seq`.
            reason: Why.

        Returns:
            The record.

        Raises:
            ValueError: It is not the next event, or there is none.
            InvalidValue: There is no reason.
            StatebookError: As `open`, `read_after` and `advance_cursor`.
            Exception: What the sink raised; nothing was skipped.
        """
        with self._lock:
            return self._run(self._core.skip(seq, reason, self._clock_ms()), None)

    def _run(self, steps: Generator[Step, None, R], stop: threading.Event | None) -> R:
        try:
            step = next(steps)
            while True:
                try:
                    self._carry_out(step, stop)
                except Exception as error:  # noqa: BLE001 - handed to the core, which decides
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result

    def _carry_out(self, step: Step, stop: threading.Event | None) -> None:
        if isinstance(step, Read):
            step.page = self._store.read_after(self._core.key, step.after, step.limit)
        elif isinstance(step, Deliver):
            step.acked = self._sink.deliver(step.delivery)
        elif isinstance(step, Advance):
            step.cursor = self._store.advance_cursor(step.cursor, step.to_seq)
        elif isinstance(step, Open):
            step.cursor = self._store.open_cursor(self._core.key, self._core.exporter)
        elif isinstance(step, Pause):
            if stop is not None:
                step.stopped = stop.wait(step.seconds)
            else:
                self._sleep(step.seconds)
        else:
            self._sink.skipped(step.skipped)


class AsyncJournalExporter:
    """A `JournalExporter`, from asyncio. Drains run one at a time; a cancelled one can be run again."""

    def __init__(
        self,
        store: AsyncThreadJournalStore,
        key: ThreadKey,
        exporter: str,
        sink: AsyncJournalExportSink,
        *,
        page: int = PAGE,
        patience: Patience = PATIENCE,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Make an exporter; as `JournalExporter`.

        Args:
            store: The facade of an open store.
            key: The thread.
            exporter: The exporter's name: which cursor.
            sink: Where to deliver; a blocking sink in a `SinkInPool`.
            page: How many events a delivery holds at most, 1 to 10,000.
            patience: How often and how patiently the store, and in `follow` the sink, is tried again.
            clock_ms: Unix time in milliseconds, for records of skips.

        Raises:
            ValueError: The page is outside its range.
        """
        self._store = store
        self._sink = sink
        self._clock_ms = clock_ms
        self._core = ExportCore(key, exporter, page=page, patience=patience)
        self._lock = asyncio.Lock()

    @property
    def acked_seq(self) -> int | None:
        """As `JournalExporter.acked_seq`."""
        return self._core.acked_seq

    async def open(self) -> ExportCursor:
        """As `JournalExporter.open`."""
        async with self._lock:
            return await self._run(self._core.open(), None)

    async def reset(self, to_seq: int, *, expected_version: int) -> ExportCursor:
        """As `JournalExporter.reset`."""
        async with self._lock:
            cursor = await self._store.reset_cursor(
                self._core.key, self._core.exporter, to_seq, expected_version=expected_version
            )
            self._core.opened(cursor)
            return cursor

    async def drain(self) -> DrainReport:
        """As `JournalExporter.drain`."""
        async with self._lock:
            return await self._run(self._core.drain(), None)

    async def follow(self, stop: asyncio.Event, *, poll_s: float = 1.0) -> None:
        """As `JournalExporter.follow`."""
        async with self._lock:
            await self._run(self._core.follow(poll_s, stop.is_set), stop)

    async def skip(self, seq: int, reason: str) -> SkippedEvent:
        """As `JournalExporter.skip`."""
        async with self._lock:
            return await self._run(self._core.skip(seq, reason, self._clock_ms()), None)

    async def _run(self, steps: Generator[Step, None, R], stop: asyncio.Event | None) -> R:
        try:
            step = next(steps)
            while True:
                try:
                    await self._carry_out(step, stop)
                except Exception as error:  # noqa: BLE001 - handed to the core, which decides
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result

    async def _carry_out(self, step: Step, stop: asyncio.Event | None) -> None:
        if isinstance(step, Read):
            step.page = await self._store.read_after(self._core.key, step.after, step.limit)
        elif isinstance(step, Deliver):
            step.acked = await self._sink.deliver(step.delivery)
        elif isinstance(step, Advance):
            step.cursor = await self._store.advance_cursor(step.cursor, step.to_seq)
        elif isinstance(step, Open):
            step.cursor = await self._store.open_cursor(self._core.key, self._core.exporter)
        elif isinstance(step, Pause):
            await self._pause(step, stop)
        else:
            await self._sink.skipped(step.skipped)

    @staticmethod
    async def _pause(step: Pause, stop: asyncio.Event | None) -> None:
        if stop is None:
            await asyncio.sleep(step.seconds)
            return
        try:
            await asyncio.wait_for(stop.wait(), step.seconds)
        except TimeoutError:
            return
        step.stopped = True
