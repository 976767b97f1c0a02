"""The recorder's core: a bounded buffer of events in front of one commit lane, one batch of it in flight.

It waits for nothing: it gives out futures. `InvocationRecorder` and `BlockingInvocationRecorder` wait for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from statebook.codec import Json, encode_value
from statebook.errors import Overloaded, StatebookError, StoreClosed, WriterFenced
from statebook.lanes.commit import CommitLane
from statebook.model import Batch, Event, Receipt, RecordedEvent


class EventDraft(msgspec.Struct, frozen=True):
    """An event as it is handed to a recorder, which adds id, time, run and turn.

    Attributes:
        type: The event type, such as `tool/result`.
        payload: Plain values, nested.
        required: Whether a reader that does not know the type must refuse to recover.
        turn_id: The turn, or None for the recorder's current one.
        event_id: The receiver's key for deduplication, or None for a fresh one.
    """

    type: str
    payload: Json
    required: bool = False
    turn_id: str | None = None
    event_id: str | None = None


class RecorderBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a recorder takes in, and how large its batches grow.

    Attributes:
        buffer_events_max: Events that are accepted and not yet committed.
        buffer_bytes_max: Their bytes.
        batch_events_max: Events of one batch; the store's own limit holds too. That many appended events start a
            commit by themselves.
        batch_bytes_max: Their bytes; larger ones go alone.

    Raises:
        ValueError: A bound is below 1.
    """

    buffer_events_max: int = 10_000
    buffer_bytes_max: int = 32 * 1024 * 1024
    batch_events_max: int = 512
    batch_bytes_max: int = 1024 * 1024

    def __post_init__(self) -> None:
        if min(self.buffer_events_max, self.buffer_bytes_max, self.batch_events_max, self.batch_bytes_max) < 1:
            raise ValueError("every bound of a recorder must be at least 1")


class CommitListener(Protocol):
    """Who wants to know that events were committed, as an export during execution does."""

    def nudge(self) -> None:
        """Something was committed. Called in a lane's thread; must not block and must not raise."""


class _Unit:
    """Events that stay together in one batch, and who waits for them."""

    __slots__ = ("events", "future", "number", "size", "waiters")

    def __init__(self, number: int, events: tuple[Event, ...], size: int) -> None:
        self.number = number
        self.events = events
        self.size = size
        self.future: Future[tuple[RecordedEvent, ...]] = Future()
        self.future.set_running_or_notify_cancel()
        self.waiters: list[Future[Receipt | None]] = []


class RecorderCore:
    """Buffers events in order and commits them through a lane. Safe from many threads; blocks in none.

    Guarantees J17 and J22: in order; a prefix is durable when its future is fulfilled; futures cannot be cancelled;
    after a failure of a commit or of ownership, or after the end, nothing is written and every call raises at once.
    """

    def __init__(
        self,
        lane: CommitLane,
        *,
        run_id: str,
        turn_id: str | None,
        clock_ms: Callable[[], int],
        new_id: Callable[[], str],
        bounds: RecorderBounds,
        listener: CommitListener | None,
    ) -> None:
        """Make a core over a lane. No I/O."""
        limits = lane.lanes.limits
        self.run_id = run_id
        self.turn_id = turn_id
        self._lane = lane
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._bounds = bounds
        self._batch_events_max = min(bounds.batch_events_max, limits.batch_events_max)
        self._batch_bytes_max = min(bounds.batch_bytes_max, limits.batch_bytes_max // 2)
        self._listener = listener
        self._lock = threading.Lock()
        self._buffer: deque[_Unit] = deque()
        self._flying: list[_Unit] = []
        self._numbers = 0
        self._due = 0
        self._events = self._bytes = 0
        self._buffered = 0
        self._buffered_bytes = 0
        self._receipt: Receipt | None = None
        self._error: StatebookError | None = None
        self._ended = False
        self._awaits_space = False

    # ------------------------------------------------------------------------------------------------------- intake

    def put(self, drafts: Sequence[EventDraft], *, due: bool) -> Future[tuple[RecordedEvent, ...]]:
        """Accept events that stay together, behind everything accepted before.

        Args:
            drafts: At least one.
            due: Whether they, and what is before them, are to be committed now.

        Returns:
            The future of the events as they stand in the journal.

        Raises:
            InvalidBatch: There is no event, or an event id stands in them twice.
            InvalidKey: An id or type is outside ID-1.
            InvalidValue: A payload is no such value.
            LimitExceeded: They are too large for one batch.
            Overloaded: The buffer is full; nothing was accepted.
            WriterFenced: The recorder was stopped by an error, which is the cause.
            StoreClosed: The invocation has ended.
        """
        self.check()
        batch = Batch(self._new_id(), tuple(self._event(draft) for draft in drafts))
        size = self._lane.measure(batch)
        with self._lock:
            self._check()
            if self._events and self._events + len(batch.events) > self._bounds.buffer_events_max:
                raise self._full(f"{self._events} events")
            if self._bytes and self._bytes + size > self._bounds.buffer_bytes_max:
                raise self._full(f"{self._bytes} bytes")
            self._numbers += 1
            unit = _Unit(self._numbers, batch.events, size)
            self._buffer.append(unit)
            self._count(unit, 1)
            self._buffered += len(unit.events)
            self._buffered_bytes += size
            full = self._buffered >= self._batch_events_max or self._buffered_bytes >= self._batch_bytes_max
            if due or full:
                self._due = unit.number
        self._pump()
        return unit.future

    def _event(self, draft: EventDraft) -> Event:
        return Event(
            event_id=self._new_id() if draft.event_id is None else draft.event_id,
            type=draft.type,
            occurred_at=self._clock_ms(),
            payload=encode_value(draft.payload),
            run_id=self.run_id,
            turn_id=self.turn_id if draft.turn_id is None else draft.turn_id,
            required=draft.required,
        )

    def _full(self, what: str) -> Overloaded:
        return Overloaded(f"{what} wait in this recorder; nothing was accepted: flush first", key=self._name)

    def _count(self, unit: _Unit, sign: int) -> None:
        self._events += sign * len(unit.events)
        self._bytes += sign * unit.size

    def flush(self) -> Future[Receipt | None]:
        """A future of everything accepted before this call: the last receipt, None where there was nothing (LANE-3).

        Raises:
            WriterFenced: The recorder was stopped by an error, which is the cause.
        """
        future: Future[Receipt | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._error is not None:
                raise self._refusal()
            last = self._buffer[-1] if self._buffer else self._flying[-1] if self._flying else None
            receipt = self._receipt
            if last is not None:
                last.waiters.append(future)
                self._due = last.number
        if last is None:
            future.set_result(receipt)
        else:
            self._pump()
        return future

    # -------------------------------------------------------------------------------------------------- stop and end

    @property
    def error(self) -> StatebookError | None:
        """Why the recorder has stopped, or None."""
        return self._error

    @property
    def ended(self) -> bool:
        """Whether the invocation has ended."""
        return self._ended

    def check(self) -> None:
        """Raise where nothing can be recorded any more: before each effect of the invocation.

        Raises:
            WriterFenced: A commit or the ownership failed; the error is the cause.
            StoreClosed: The invocation has ended.
        """
        if self._error is None and self._lane.error is not None:
            self.stop(self._lane.error)
        with self._lock:
            self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._refusal()
        if self._ended:
            raise StoreClosed("this invocation has ended; nothing more is recorded for it", key=self._name)

    def stop(self, error: StatebookError) -> None:
        """Stop for good, as when a heartbeat says that the claim is over. What is in flight gets its answer."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            units = self._drop()
        self._refuse(units)

    def _drop(self) -> list[_Unit]:
        units = list(self._buffer)
        self._buffer.clear()
        self._buffered = self._buffered_bytes = 0
        for unit in units:
            self._count(unit, -1)
        return units

    def end(self) -> None:
        """Accept nothing more. What was accepted is committed; `flush` waits for it."""
        with self._lock:
            self._ended = True

    @property
    def _name(self) -> str:
        return self._lane.claim.key.name

    def _refusal(self) -> WriterFenced:
        cause = self._error
        error = WriterFenced(
            f"this recorder stopped after {type(cause).__name__}: {'' if cause is None else cause.message} Nothing of "
            "this call was written; stop all effects, claim again and read again",
            current_epoch=self._lane.claim.epoch,
            key=self._name,
        )
        error.__cause__ = cause
        return error

    # ------------------------------------------------------------------------------------------------------ commits

    def _pump(self) -> None:
        """Hand the next batch to the lane, where one is due and none is in flight."""
        with self._lock:
            if self._flying or self._error is not None or not self._buffer or self._buffer[0].number > self._due:
                return
            units = self._next()
            batch = Batch(self._new_id(), tuple(event for unit in units for event in unit.events))
            future: Future[Receipt] | None = None
            dropped: list[_Unit] = []
            asks = False
            try:
                future = self._lane.submit(batch)
            except Overloaded:
                self._buffer.extendleft(reversed(units))
                asks, self._awaits_space = not self._awaits_space, True
            except StatebookError as error:
                self._buffer.extendleft(reversed(units))
                self._error = error
                dropped = self._drop()
            else:
                self._flying = units
                for unit in units:
                    self._buffered -= len(unit.events)
                    self._buffered_bytes -= unit.size
        if future is not None:
            future.add_done_callback(self._answered)
        elif asks:
            self._lane.lanes.when_space(self._has_space)
        self._refuse(dropped)

    def _next(self) -> list[_Unit]:
        """Take units from the buffer, as many as one batch holds; an event id that comes twice starts another one."""
        units = [self._buffer.popleft()]
        events, size = len(units[0].events), units[0].size
        ids = {event.event_id for event in units[0].events}
        while self._buffer:
            unit = self._buffer[0]
            events, size = events + len(unit.events), size + unit.size
            if events > self._batch_events_max or size > self._batch_bytes_max:
                break
            own = {event.event_id for event in unit.events}
            if ids & own:
                break
            ids |= own
            units.append(self._buffer.popleft())
        return units

    def _has_space(self) -> None:
        with self._lock:
            self._awaits_space = False
        self._pump()

    def _answered(self, future: Future[Receipt]) -> None:
        """The lane's answer; in the lane's thread."""
        error = future.exception()
        with self._lock:
            units, self._flying = self._flying, []
            for unit in units:
                self._count(unit, -1)
            dropped: list[_Unit] = []
            if error is None:
                self._receipt = future.result()
            elif self._error is None:
                self._error = error if isinstance(error, StatebookError) else StatebookError(str(error))
                dropped = self._drop()
        if error is None:
            self._give(units, future.result())
            if self._listener is not None:
                self._listener.nudge()
            self._pump()
            return
        for unit in units:
            unit.future.set_exception(error)
            for waiter in unit.waiters:
                waiter.set_exception(error)
        self._refuse(dropped)

    def _refuse(self, units: Sequence[_Unit]) -> None:
        for unit in units:
            refusal = self._refusal()
            unit.future.set_exception(refusal)
            for waiter in unit.waiters:
                waiter.set_exception(refusal)

    @staticmethod
    def _give(units: Sequence[_Unit], receipt: Receipt) -> None:
        seq = receipt.first_seq
        for unit in units:
            unit.future.set_result(
                tuple(
                    RecordedEvent(
                        place,
                        e.event_id,
                        e.type,
                        e.occurred_at,
                        e.payload,
                        e.run_id,
                        e.turn_id,
                        e.required,
                        e.schema_version,
                    )
                    for place, e in enumerate(unit.events, seq)
                )
            )
            seq += len(unit.events)
            for waiter in unit.waiters:
                waiter.set_result(receipt)
