"""InvocationRecorder: turns what one invocation of an agent does into events, through a commit lane (J17, J22)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from statebook.aio.calls import outcome_of
from statebook.codec import Json
from statebook.errors import OutcomeUnknown, StatebookError
from statebook.ids import new_id as fresh_id
from statebook.lanes.commit import CommitLane
from statebook.model import Receipt, RecordedEvent
from statebook.thread import wall_clock_ms
from statebook.threads.context_export import ContextExport
from statebook.threads.recording import EventDraft, RecorderBounds, RecorderCore


class _Recorder:
    """What both recorders share: everything that does not wait."""

    def __init__(
        self,
        lane: CommitLane,
        *,
        run_id: str,
        turn_id: str | None = None,
        export: ContextExport | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        new_id: Callable[[], str] = fresh_id,
        bounds: RecorderBounds | None = None,
    ) -> None:
        """Make a recorder of one invocation. No I/O.

        Args:
            lane: The lane of the thread's claim. One recorder at a time should use it.
            run_id: The execution run that every event belongs to.
            turn_id: The turn, or None.
            export: What exports to a sink in the call's context during execution, or None.
            clock_ms: Unix time in milliseconds, for events.
            new_id: Makes event ids and batch ids.
            bounds: How much is buffered, and how large batches grow.
        """
        self._export = export
        self._core = RecorderCore(
            lane,
            run_id=run_id,
            turn_id=turn_id,
            clock_ms=clock_ms,
            new_id=new_id,
            bounds=bounds or RecorderBounds(),
            listener=export,
        )

    @property
    def run_id(self) -> str:
        """The execution run that every event belongs to."""
        return self._core.run_id

    @property
    def turn_id(self) -> str | None:
        """The turn of the events to come."""
        return self._core.turn_id

    def turn(self, turn_id: str | None) -> None:
        """Set the turn of the events to come.

        Args:
            turn_id: The turn, or None.
        """
        self._core.turn_id = turn_id

    @property
    def error(self) -> StatebookError | None:
        """Why the recorder has stopped, or None."""
        return self._core.error

    @property
    def ended(self) -> bool:
        """Whether the invocation has ended."""
        return self._core.ended

    def append(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        flush: bool = False,
        required: bool = False,
        turn_id: str | None = None,
        event_id: str | None = None,
    ) -> None:
        """Accept an event, behind everything accepted before, without waiting for its commit.

        Guarantees J17: in order; it is durable when a later `flush` or `record` has returned.

        Args:
            type: The event type.
            payload: Plain values, nested.
            flush: Whether a commit of everything accepted so far is to be started at once. It is not awaited. Else it
                starts with the next `record` or `flush`, or when a batch is full.
            required: Whether a reader that does not know the type must refuse to recover.
            turn_id: The turn, or None for the recorder's current one.
            event_id: The receiver's key for deduplication, or None for a fresh one.

        Raises:
            InvalidKey: An id or the type is outside ID-1.
            InvalidValue: The payload is no such value.
            LimitExceeded: The event is too large.
            Overloaded: The buffer is full; nothing was accepted.
            WriterFenced: The recorder was stopped by an error, which is the cause.
            StoreClosed: The invocation has ended.
        """
        self._core.put((EventDraft(type, payload, required, turn_id, event_id),), due=flush)

    def check(self) -> None:
        """Raise where nothing can be recorded any more. Call it before each effect of the invocation.

        Guarantees J22: a failure of a commit or of ownership stops further effects.

        Raises:
            WriterFenced: A commit or the ownership failed; the error is the cause.
            StoreClosed: The invocation has ended.
        """
        self._core.check()

    def stop(self, error: StatebookError) -> None:
        """Stop for good, as when a heartbeat was `WriterFenced`. What is in flight gets its answer.

        Args:
            error: Why.
        """
        self._core.stop(error)


class InvocationRecorder(_Recorder):
    """Records the events of one invocation. From asyncio; `append`, `check` and `stop` from any thread.

    Guarantees J17: `record` returns when its event is durable, `flush` when everything accepted before it is. J22:
    cancelling a waiter cancels no commit; after a failure of a commit or of ownership every call raises at once. After
    `end` nothing is written. As an async context manager it ends the invocation.
    """

    async def record(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        required: bool = False,
        turn_id: str | None = None,
        event_id: str | None = None,
    ) -> RecordedEvent:
        """Record an event and wait for its commit.

        Guarantees J17: durable when this returns, and so is everything accepted before.

        Args:
            type: The event type.
            payload: Plain values, nested.
            required: Whether a reader that does not know the type must refuse to recover.
            turn_id: The turn, or None for the recorder's current one.
            event_id: The receiver's key for deduplication, or None for a fresh one.

        Returns:
            The event as it stands in the journal.

        Raises:
            StatebookError: As `append`; or what its commit raised, which has stopped the recorder.
        """
        return (await self.record_together(EventDraft(type, payload, required, turn_id, event_id)))[0]

    async def record_together(self, *drafts: EventDraft) -> tuple[RecordedEvent, ...]:
        """Record events in one batch, all of them or none, and wait for the commit.

        Guarantees J12: state and facts commit together, where one of the drafts is the checkpoint.

        Args:
            *drafts: At least one.

        Returns:
            The events as they stand in the journal.

        Raises:
            InvalidBatch: There is no draft, or an event id stands in them twice. The recorder goes on.
            StatebookError: As `record`.
        """
        return await outcome_of(self._core.put(drafts, due=True), None, OutcomeUnknown)

    async def flush(self) -> Receipt | None:
        """Wait until everything accepted before this call is committed, whoever handed it in.

        Guarantees LANE-3.

        Returns:
            The receipt of the last batch; None where nothing was ever accepted.

        Raises:
            WriterFenced: The recorder was stopped before, by the error that is the cause.
            StatebookError: What the commit raised, which has stopped the recorder.
        """
        return await outcome_of(self._core.flush(), None, OutcomeUnknown)

    async def end(self) -> Receipt | None:
        """End the invocation: accept nothing more, commit what was accepted, and finish its export. Harmless again.

        A failure of the sink is no failure of the invocation: `ContextExport.error` has it, and the cursor its place.

        Returns:
            The receipt of the last batch; None where nothing was ever accepted.

        Raises:
            StatebookError: As `flush`.
        """
        self._core.end()
        receipt = await self.flush()
        if self._export is not None:
            await outcome_of(self._export.finish(), None, OutcomeUnknown)
        return receipt

    async def __aenter__(self) -> Self:
        """Give the recorder itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the invocation; an error of the body wins over one of the end."""
        try:
            await self.end()
        except StatebookError:
            if error is None:
                raise


class BlockingInvocationRecorder(_Recorder):
    """Records the events of one invocation, for code without an event loop. The same promises and errors."""

    def record(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        required: bool = False,
        turn_id: str | None = None,
        event_id: str | None = None,
    ) -> RecordedEvent:
        """As `InvocationRecorder.record`."""
        return self.record_together(EventDraft(type, payload, required, turn_id, event_id))[0]

    def record_together(self, *drafts: EventDraft) -> tuple[RecordedEvent, ...]:
        """As `InvocationRecorder.record_together`."""
        return self._core.put(drafts, due=True).result()

    def flush(self) -> Receipt | None:
        """As `InvocationRecorder.flush`."""
        return self._core.flush().result()

    def end(self) -> Receipt | None:
        """As `InvocationRecorder.end`."""
        self._core.end()
        receipt = self.flush()
        if self._export is not None:
            self._export.finish().result()
        return receipt

    def __enter__(self) -> Self:
        """Give the recorder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the invocation; an error of the body wins over one of the end."""
        try:
            self.end()
        except StatebookError:
            if error is None:
                raise
