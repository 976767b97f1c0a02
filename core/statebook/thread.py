"""ThreadJournal: the handle of one thread over any journal store. It keeps the base, the claim and the order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Lock
from types import TracebackType
from typing import Literal, Self

import msgspec

from statebook.codec import Json, encode_value
from statebook.errors import (
    BackendUnavailable,
    BatchConflict,
    Conflict,
    InvalidInput,
    OutcomeUnknown,
    StatebookError,
    WriterFenced,
)
from statebook.ids import new_id as fresh_id
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    ANY,
    Batch,
    ClaimInfo,
    CollectReport,
    Event,
    EventPage,
    Expect,
    JournalHead,
    Receipt,
    RecordedEvent,
    VerifyReport,
    WriterClaim,
)
from statebook.pages import iterate, iterate_from_checkpoint
from statebook.patience import PATIENCE, Patience
from statebook.thread_cursor import ThreadCursor


def wall_clock_ms() -> int:
    """Unix time in milliseconds. Informative: it decides nothing (CLAIM-5)."""
    return time.time_ns() // 1_000_000


class _Sent(msgspec.Struct, frozen=True, gc=False):
    claim: WriterClaim
    batch_id: str
    base_seq: int


class ThreadJournal:
    """One thread's journal: claim it, append to it, read it, export it. Safe from many threads.

    Batches commit in the order in which they are handed in (APPEND-4). After an append that failed, or whose outcome
    stayed unknown, the handle refuses further appends until `claim` is called again: what was read before may be out of
    date, and the handle never reloads and continues (CLAIM-4). Reading needs no claim (CLAIM-7).

    As a context manager it releases the claim at the end. The store stays open: it is the caller's.

    Attributes:
        key: The thread.
    """

    def __init__(
        self,
        store: ThreadJournalStore,
        key: ThreadKey,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        new_id: Callable[[], str] = fresh_id,
        sleep: Callable[[float], None] = time.sleep,
        patience: Patience = PATIENCE,
    ) -> None:
        """Make a handle. No I/O.

        Args:
            store: An open store.
            key: The thread.
            clock_ms: Unix time in milliseconds, for events.
            new_id: Makes event ids and batch ids.
            sleep: Waits so many seconds before a call is sent again.
            patience: How often and how patiently.
        """
        self.key = key
        self._store = store
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._sleep = sleep
        self._patience = patience
        self._lock = Lock()
        self._claim: WriterClaim | None = None
        self._last_seq = 0
        self._stopped: str | None = None
        self._unsettled: _Sent | None = None

    def __enter__(self) -> Self:
        """Give the handle itself; it claims nothing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the claim, if there is one; a claim that is over is no error, and an error of the body wins."""
        try:
            self.release()
        except WriterFenced:
            return
        except StatebookError:
            if error is None:
                raise

    # ------------------------------------------------------------------------------------------------------ writing

    @property
    def held(self) -> WriterClaim | None:
        """The claim of this handle, which may be fenced by now, or None."""
        return self._claim

    @property
    def last_seq(self) -> int:
        """The last seq that this handle knows from its claim and receipts: the base of its next batch."""
        return self._last_seq

    @property
    def unsettled(self) -> tuple[str, int] | None:
        """The batch id and base of an append whose outcome stayed unknown, or None; see `settle`."""
        sent = self._unsettled
        return None if sent is None else (sent.batch_id, sent.base_seq)

    def claim(self, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY) -> WriterClaim:
        """Become the journal's writer. Read the journal afterwards: others may have written.

        Guarantees CLAIM-1. CLAIM-4: this is the only way on for a handle that was fenced or whose append failed.

        Args:
            writer_id: Who claims.
            replacing: `ANY`, `NONE`, or the claim that must hold the journal now.

        Returns:
            The claim.

        Raises:
            InvalidKey: `writer_id` is outside ID-1.
            WriterBusy: The condition does not hold; what this handle had before stays.
            OutcomeUnknown: The claim may have been made, or may be made later; claim again.
        """
        with self._lock:
            claim = self._store.claim(self.key, writer_id, replacing=replacing)
            self._claim, self._last_seq, self._stopped = claim, claim.last_seq, None
            return claim

    def event(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        required: bool = False,
        run_id: str | None = None,
        turn_id: str | None = None,
        event_id: str | None = None,
        occurred_at: int | None = None,
    ) -> Event:
        """Build an event from plain values. No I/O.

        Guarantees VAL-1: what JSON would refuse or change is refused here.

        Args:
            type: The event type, such as `run/start`.
            payload: Plain values, nested.
            required: Whether a reader that does not know the type must refuse to recover.
            run_id: The execution run, or None.
            turn_id: The turn, or None.
            event_id: The receiver's key for deduplication, or None for a fresh one.
            occurred_at: Unix time in milliseconds, or None for now.

        Returns:
            The event.

        Raises:
            InvalidKey: An id or the type is outside ID-1.
            InvalidValue: The payload or the time is no such value.
            LimitExceeded: The payload holds an integer of too many digits.
        """
        return Event(
            event_id=self._new_id() if event_id is None else event_id,
            type=type,
            occurred_at=self._clock_ms() if occurred_at is None else occurred_at,
            payload=encode_value(payload),
            run_id=run_id,
            turn_id=turn_id,
            required=required,
        )

    def append(self, *events: Event, batch_id: str | None = None) -> Receipt:
        """Append events as one batch: all of them or none.

        Guarantees APPEND-2, APPEND-4 and, through `append_batch`, SETTLE-1.

        Args:
            *events: At least one.
            batch_id: The writer's name for the batch, or None for a fresh one.

        Returns:
            The receipt.

        Raises:
            InvalidBatch: There is no event, or an event id stands in it twice. Nothing was handed in.
            InvalidKey: `batch_id` is outside ID-1. Nothing was handed in.
            StatebookError: As `append_batch`.
        """
        return self.append_batch(Batch(self._new_id() if batch_id is None else batch_id, events))

    def append_batch(self, batch: Batch) -> Receipt:
        """Append a batch behind the last seq of this handle.

        Guarantees APPEND-4: in the order handed in, and after a failure nothing. SETTLE-1: where the outcome is
        unknown the same batch is sent again, a bounded number of times, and then settled by SETTLE-2.

        Args:
            batch: The batch. One that an earlier claim of this journal had sent is recognised (APPEND-3).

        Returns:
            The receipt; `replayed` where the batch was there already, as after a lost reply.

        Raises:
            WriterFenced: A newer claim exists, or this handle has no claim, or it stopped before.
            HeadConflict: The journal has moved past this handle.
            BatchConflict: The batch id or an event id is in the journal already.
            LimitExceeded: The batch is too large.
            JournalRegressed: Acknowledged data is gone.
            JournalCorrupt: The journal is damaged.
            BackendUnavailable: The batch is not in the journal and never will be.
            OutcomeUnknown: Sending and settling went on failing; call `settle` later.
        """
        with self._lock:
            claim = self._writable()
            sent = _Sent(claim, batch.batch_id, self._last_seq)
            # Until the outcome is known nothing may follow, also when an interrupt ends this call (APPEND-4).
            self._unsettled, self._stopped = sent, "an append that was interrupted"
            try:
                receipt = self._commit(sent, batch)
            except StatebookError as error:
                self._stopped = f"{type(error).__name__}: {error.message}"
                if isinstance(error, (Conflict, WriterFenced, BatchConflict, InvalidInput, BackendUnavailable)):
                    self._unsettled = None
                raise
            self._unsettled = self._stopped = None
            self._last_seq = max(self._last_seq, receipt.last_seq)
            return receipt

    def settle(self) -> Receipt | None:
        """Find out what became of the append whose outcome stayed unknown.

        Guarantees SETTLE-2: None means that the batch is not in the journal and never will be. Either way the handle
        appends again only after `claim`.

        Returns:
            The receipt of the batch, or None.

        Raises:
            ValueError: No append of this handle is unsettled.
            OutcomeUnknown: It cannot be told yet; settle again later.
            WriterFenced: The journal is gone, or another incarnation is in its place.
            Trimmed: The place where the batch would be has been trimmed away.
        """
        with self._lock:
            if self._unsettled is None:
                raise ValueError("no append of this handle is unsettled")
            receipt = self._settle(self._unsettled)
            self._unsettled = None
            return receipt

    def heartbeat(self) -> None:
        """Change the head so that observers see this writer alive (CLAIM-5). Does not wait for an append.

        Raises:
            WriterFenced: The claim is over, or there is none; the handle refuses appends from now on.
            BackendUnavailable: The heartbeat was not made.
            OutcomeUnknown: It may have been made; the next one is as good.
        """
        claim = self._claim
        if claim is None:
            raise self._no_claim()
        try:
            self._store.heartbeat(claim)
        except WriterFenced as error:
            if self._claim is claim:
                self._stopped = f"{type(error).__name__}: {error.message}"
            raise

    def release(self) -> None:
        """Give the claim back; harmless where there is none.

        Guarantees CLAIM-3: the epoch stays. A lost reply is sent again a bounded number of times.

        Raises:
            WriterFenced: A newer claim exists, or the journal is gone. The handle has no claim either way.
            BackendUnavailable: The claim was not released.
            OutcomeUnknown: It may have been released, or be released later.
        """
        with self._lock:
            claim = self._claim
            if claim is None:
                return
            unknown = False
            for pause in self._patience.pauses():
                self._wait(pause)
                try:
                    self._store.release(claim)
                except OutcomeUnknown:
                    unknown = True
                    continue
                except WriterFenced:
                    self._claim = None
                    if unknown:  # our release had landed, and somebody claimed since
                        return
                    raise
                self._claim = None
                return
            raise OutcomeUnknown("the claim may have been released or not; release again", key=self.key.name)

    # ------------------------------------------------------------------------------------------------------ reading

    def head(self) -> JournalHead | None:
        """Read the head, or None where there is no journal (CLAIM-7)."""
        return self._store.head(self.key)

    def read_after(self, seq: int, limit: int = 1_000) -> EventPage:
        """Read one page of the events behind a seq.

        Guarantees READ-1 to READ-3.

        Args:
            seq: Events with a greater seq are read; 0 for all.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            ValueError: `seq` or `limit` is outside its range.
            JournalRegressed: `seq` is behind the end of the journal.
            Trimmed: `seq` is below `first_seq - 1`.
        """
        return self._store.read_after(self.key, seq, limit)

    def read(self, after: int = 0, *, page: int = 1_000) -> Iterator[RecordedEvent]:
        """Iterate over the events behind a seq, up to the end as it is when the first page is read.

        Guarantees READ-1, READ-2 page by page; nothing is held open between pages, so a pause blocks nobody.

        Args:
            after: Events with a greater seq are read; 0 for all.
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The events, ascending and contiguous.

        Raises:
            ValueError: `after` or `page` is outside its range.
            JournalRegressed: `after` is behind the end of the journal; raised where the iteration meets it.
            Trimmed: Events to be read have been trimmed away; raised where the iteration meets it.
        """
        return iterate(self._store, self.key, after, page)

    def read_from_checkpoint(self, *, page: int = 1_000) -> Iterator[RecordedEvent]:
        """Iterate over the last checkpoint and what follows it; over everything that is left where there is none.

        Guarantees READ-4: costs what follows the checkpoint, not the length of the journal.

        Args:
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The events; the first one is the checkpoint where there is one.

        Raises:
            ValueError: `page` is outside its range.
            Trimmed: Trims went on overtaking this call.
        """
        return iterate_from_checkpoint(self._store, self.key, page)

    def cursor(self, exporter: str) -> ThreadCursor:
        """Open an export cursor, and fence its earlier opener (CURSOR-2).

        Args:
            exporter: The exporter's name.

        Returns:
            The cursor's handle.

        Raises:
            InvalidKey: `exporter` is outside ID-1.
            JournalNotFound: There is no journal.
            CursorInvalid: The stored cursor belongs to another incarnation of the journal.
            JournalRegressed: The stored cursor is ahead of the journal.
            Trimmed: The stored cursor is before the first event.
        """
        cursor = self._store.open_cursor(self.key, exporter)
        return ThreadCursor(self._store, cursor, sleep=self._sleep, patience=self._patience)

    # -------------------------------------------------------------------------------------------------- maintenance

    def trim(self, before_seq: int) -> JournalHead:
        """Remove the events before a seq, as far as cursors and the checkpoint allow (LIFE-2).

        Args:
            before_seq: The first seq to keep.

        Returns:
            The head; its `first_seq` shows how far the trim went.

        Raises:
            ValueError: `before_seq` is no integer of at least 0.
            JournalNotFound: There is no journal.
        """
        return self._store.trim(self.key, before_seq)

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Check the stored journal and its cursors, and report every finding (FORMAT-3).

        Args:
            deep: Read and check every batch and the chain.

        Returns:
            The findings; none where all is well.
        """
        return self._store.verify(self.key, deep=deep)

    def collect(self) -> CollectReport:
        """Delete what failed commits left behind (LIFE-3).

        Returns:
            What was done.
        """
        return self._store.collect(self.key)

    # ----------------------------------------------------------------------------------------------------- internal

    def _writable(self) -> WriterClaim:
        claim = self._claim
        if claim is None:
            raise self._no_claim()
        if self._stopped is not None:
            raise WriterFenced(
                f"this handle stopped after {self._stopped}. Nothing of this call was written; claim again and read "
                "again",
                current_epoch=claim.epoch,
                key=self.key.name,
            )
        return claim

    def _no_claim(self) -> WriterFenced:
        return WriterFenced("this handle has no claim; call claim(writer_id) first", key=self.key.name)

    def _wait(self, pause: float) -> None:
        if pause > 0:
            self._sleep(pause)

    def _commit(self, sent: _Sent, batch: Batch) -> Receipt:
        try:
            return self._store.append(sent.claim, batch, sent.base_seq)
        except (OutcomeUnknown, BackendUnavailable) as error:
            failed = [error]
        for pause in islice(self._patience.pauses(), 1, None):
            self._wait(pause)
            try:
                return self._store.append(sent.claim, batch, sent.base_seq)
            except (OutcomeUnknown, BackendUnavailable) as error:
                failed.append(error)
        unknown = [error for error in failed if isinstance(error, OutcomeUnknown)]
        if not unknown:
            raise failed[-1]
        receipt = self._settle(sent)
        if receipt is None:
            raise BackendUnavailable(
                f"batch {sent.batch_id!r} was not committed and never will be", key=self.key.name
            ) from unknown[-1]
        return receipt

    def _settle(self, sent: _Sent) -> Receipt | None:
        last: StatebookError | None = None
        for pause in self._patience.pauses():
            self._wait(pause)
            try:
                return self._store.settle(sent.claim, sent.batch_id, sent.base_seq)
            except (OutcomeUnknown, BackendUnavailable) as error:
                last = error
        raise OutcomeUnknown(
            f"it cannot be told whether batch {sent.batch_id!r} is in the journal; settle it later",
            batch_id=sent.batch_id,
            base_seq=sent.base_seq,
            key=self.key.name,
        ) from last
