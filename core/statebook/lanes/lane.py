"""One lane, sans I/O: the queue of one thread's batches, and what each answer of the store means for it.

No lock, no thread, no clock: `LaneQueue` and `CommitLanes` bring these. Nothing here is public.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Final, TypeAlias

from statebook.errors import (
    BackendUnavailable,
    BatchConflict,
    HeadConflict,
    JournalRegressed,
    OutcomeUnknown,
    StatebookError,
    StoreClosed,
    WriterFenced,
)
from statebook.lanes.figures import Counters
from statebook.model import AppendOutcome, AppendRequest, Batch, Receipt, WriterClaim
from statebook.patience import Patience

_JUDGED: Final = (WriterFenced, HeadConflict, BatchConflict, JournalRegressed)
"""Answers that say what became of every earlier attempt too: the batch was looked for before it was refused."""


class Entry:
    """An accepted batch.

    Attributes:
        batch: The batch.
        size: Its bytes, as they are counted.
        accepted_at: When, on the lanes' clock.
        future: Of its receipt.
        waiters: Of those who wait for the prefix that ends with it.
        maybe: Whether an attempt of unknown outcome was made, so that it may be in the journal.
        base: The base that it was sent with last.
    """

    __slots__ = ("accepted_at", "base", "batch", "future", "maybe", "size", "waiters")

    def __init__(self, batch: Batch, size: int, accepted_at: float) -> None:
        self.batch = batch
        self.size = size
        self.accepted_at = accepted_at
        self.future: Future[Receipt] = running_future()
        self.waiters: list[Future[Receipt | None]] = []
        self.maybe = False
        self.base = 0


Done: TypeAlias = tuple[Entry, AppendOutcome]
"""An entry that has its answer; given to its futures outside of the lock."""


def running_future() -> Future[Receipt]:
    """A future that nobody can cancel (LANE-3)."""
    future: Future[Receipt] = Future()
    future.set_running_or_notify_cancel()
    return future


class Trouble:
    """The first batch of a lane was refused for now, or its outcome is unknown: it is sent again, then settled.

    Attributes:
        settling: Whether sending again has been given up, and the store is asked for the final answer.
        error: The last error.
    """

    __slots__ = ("_patience", "_pauses", "error", "settling")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._pauses = self._fresh()
        self.settling = False
        self.error: StatebookError = BackendUnavailable("")

    def _fresh(self) -> Iterator[float]:
        pauses = self._patience.pauses()
        next(pauses)
        return pauses

    def pause(self) -> float | None:
        """The pause before the next attempt, or None where there were enough."""
        return next(self._pauses, None)

    def settle(self) -> None:
        """Go over to asking, with fresh patience."""
        self.settling = True
        self._pauses = self._fresh()


class Lane:
    """One thread's queue (LANE-1). Its owner's lock guards it.

    Attributes:
        claim: The claim that it appends through.
        base: The last seq that it knows: the base of its first batch.
        receipt: The last receipt, or None.
        entries: Accepted and not yet answered; the first `sent` of them are in a physical commit.
        sent: How many are in flight.
        busy: Whether it has the turn: until the answers of its last physical commit have been given out.
        ready: Whether it stands in the queue of ready or pausing lanes.
        not_before: When its next attempt may be made.
        closed: Why it accepts nothing more, or None.
        dropped: Whether its owner has closed it.
        trouble: What its first entry is going through, or None.
        before: The lane of the same thread before this one, while it still has an answer to wait for.
        counters: Its counts.
    """

    __slots__ = (
        "_patience",
        "base",
        "before",
        "busy",
        "claim",
        "closed",
        "counters",
        "dropped",
        "entries",
        "not_before",
        "ready",
        "receipt",
        "sent",
        "trouble",
    )

    def __init__(self, claim: WriterClaim, patience: Patience) -> None:
        self.claim = claim
        self.base = claim.last_seq
        self.receipt: Receipt | None = None
        self.entries: deque[Entry] = deque()
        self.sent = 0
        self.busy = False
        self.ready = False
        self.not_before = 0.0
        self.closed: StatebookError | None = None
        self.dropped = False
        self.trouble: Trouble | None = None
        self.before: Lane | None = None
        self.counters = Counters()
        self._patience = patience

    @property
    def idle(self) -> bool:
        """Whether nothing of it is waiting for an answer, nor in flight."""
        return not self.entries and not self.busy

    @property
    def settling(self) -> bool:
        """Whether the store is to be asked what became of the first entry."""
        return self.trouble is not None and self.trouble.settling

    def refusal(self) -> StatebookError:
        """The error for what comes after the lane was closed: certainly not written (LANE-4)."""
        cause = self.closed
        if isinstance(cause, StoreClosed):
            return StoreClosed(cause.message, key=self.claim.key.name)
        error = WriterFenced(
            f"this lane stopped after {type(cause).__name__}: {'' if cause is None else cause.message} Nothing of this "
            "call was written; claim again, read again and open a lane for the new claim",
            current_epoch=self.claim.epoch,
            key=self.claim.key.name,
        )
        error.__cause__ = cause
        return error

    def requests(self, count: int) -> list[AppendRequest]:
        """The requests of the first so many entries, each behind the one before; they are in flight from now on."""
        base = self.base
        requests: list[AppendRequest] = []
        for place in range(count):
            entry = self.entries[place]
            entry.base = base
            requests.append(AppendRequest(self.claim, entry.batch, base))
            base += len(entry.batch.events)
        self.sent = count
        self.busy = True
        return requests

    # ------------------------------------------------------------------------------------------------------ answers

    def answered(self, outcomes: Sequence[AppendOutcome], now: float) -> list[Done]:
        """Take the store's answers to the entries in flight, in order.

        Receipts answer their entries. The first other answer decides: it is a conflict of a base that a replayed
        receipt has corrected meanwhile (sent again at once), trouble (sent again later), or the end of the lane.
        Whatever stands behind it stays queued, so that it is judged again in its order (APPEND-4).
        """
        sent = [self.entries[place] for place in range(self.sent)]
        done: list[Done] = []
        self.sent = 0
        for place, (entry, outcome) in enumerate(zip(sent, outcomes, strict=True)):
            if not isinstance(outcome, Receipt):
                for later, answer in zip(sent[place:], outcomes[place:], strict=True):
                    later.maybe = later.maybe or isinstance(answer, OutcomeUnknown | Receipt)
                if entry.base == self.base or not isinstance(outcome, HeadConflict | JournalRegressed):
                    self._failed(entry, outcome, now, done)
                return done
            self._committed(outcome, done)
        return done

    def settled(self, outcome: AppendOutcome | None, now: float) -> list[Done]:
        """Take the store's answer to `settle` for the first entry: its receipt, None for "never", or an error."""
        entry = self.entries[0]
        done: list[Done] = []
        self.sent = 0
        if isinstance(outcome, Receipt):
            self._committed(outcome, done)
        elif outcome is None:
            entry.maybe = False
            never = BackendUnavailable(
                f"batch {entry.batch.batch_id!r} was not committed and never will be", key=self.claim.key.name
            )
            never.__cause__ = self.trouble.error if self.trouble else None
            self._end(never, done)
        else:
            self._failed(entry, outcome, now, done)
        return done

    def lost(self, cause: BaseException) -> list[Done]:
        """The store raised what no store may raise: the outcome of what was sent is unknown."""
        done: list[Done] = []
        for place in range(self.sent):
            self.entries[place].maybe = True
        self.sent = 0
        error = self._unknown(self.entries[0], cause)
        self._end(error, done)
        return done

    def retire(self, reason: StatebookError) -> list[Done]:
        """Accept nothing more, and answer what was never sent; what was sent gets the store's answer."""
        self.closed = self.closed or reason
        done: list[Done] = []
        keep = max([self.sent, *(place for place, entry in enumerate(self.entries, 1) if entry.maybe)])
        while len(self.entries) > keep:
            done.append((self.entries.pop(), self.refusal()))
        done.reverse()
        return done

    def abandon(self) -> list[Done]:
        """Give up what is not in flight: unsent entries are certainly not written, the others are unknown."""
        done: list[Done] = []
        kept = [self.entries.popleft() for _ in range(self.sent)]
        for entry in self.entries:
            unsent = BackendUnavailable(
                f"the lanes were closed before batch {entry.batch.batch_id!r} was sent", key=self.claim.key.name
            )
            cause = None if self.trouble is None else self.trouble.error
            done.append((entry, self._unknown(entry, cause) if entry.maybe else unsent))
        self.entries = deque(kept)
        self.trouble = None
        return done

    # ----------------------------------------------------------------------------------------------------- internal

    def _committed(self, receipt: Receipt, done: list[Done]) -> None:
        self.base = max(self.base, receipt.last_seq)
        self.receipt = receipt
        self.trouble = None
        done.append((self.entries.popleft(), receipt))

    def _failed(self, entry: Entry, error: StatebookError, now: float, done: list[Done]) -> None:
        if not isinstance(error, OutcomeUnknown | BackendUnavailable):
            self._end(error, done)
            return
        entry.maybe = entry.maybe or isinstance(error, OutcomeUnknown)
        trouble = self.trouble = self.trouble or Trouble(self._patience)
        trouble.error = error
        pause = trouble.pause()
        if pause is None and entry.maybe and not trouble.settling:
            trouble.settle()
            pause = 0.0
        if pause is None:
            self._end(error, done)
        else:
            self.not_before = now + pause

    def _end(self, error: StatebookError, done: list[Done]) -> None:
        """Close the lane with the final answer of its first entry, and answer what can be answered behind it."""
        entry = self.entries.popleft()
        told = isinstance(error, OutcomeUnknown) and error.batch_id == entry.batch.batch_id
        if entry.maybe and not told and not isinstance(error, _JUDGED):
            error = self._unknown(entry, error)
        self.closed = self.closed or error
        self.trouble = None
        done.append((entry, error))
        landed = error.committed if isinstance(error, WriterFenced) else None
        if landed is not None:
            self.base = max(self.base, landed.last_seq)
        kept: deque[Entry] = deque()
        for later in self.entries:
            if later.maybe and landed is not None:
                kept.append(later)  # it may have landed as well: only the store knows
            elif later.maybe and isinstance(error, OutcomeUnknown):
                done.append((later, self._unknown(later, error)))
            else:
                done.append((later, self.refusal()))
        self.entries = kept

    def _unknown(self, entry: Entry, cause: BaseException | None) -> OutcomeUnknown:
        error = OutcomeUnknown(
            f"it cannot be told whether batch {entry.batch.batch_id!r} is in the journal; settle it later",
            batch_id=entry.batch.batch_id,
            base_seq=entry.base,
            key=self.claim.key.name,
        )
        error.__cause__ = cause
        return error
