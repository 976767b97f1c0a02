"""CommitLanes: bounded threads that commit what was accepted, in groups that form by themselves (LANE)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from statebook.capabilities import Feature, Limits
from statebook.codec import encode_batch
from statebook.errors import Overloaded, StatebookError, StoreClosed
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.lanes.bounds import LaneBounds
from statebook.lanes.figures import CommitFigures, LaneFigures, Stopwatch
from statebook.lanes.lane import Done, Lane
from statebook.lanes.queue import Group, LaneQueue, Question, Work
from statebook.model import AppendOutcome, Batch, Receipt, WriterClaim
from statebook.patience import PATIENCE, Patience

_EVENT_BYTES: Final = 256
"""What an event weighs beside its payload and ids, at least as much as its envelope takes."""


class CommitLanes:
    """Commits batches of many threads through bounded lanes. Safe from many threads.

    Guarantees LANE-1 to LANE-5: one lane a thread, first in, first out, one physical commit of a thread in flight;
    whatever ready lanes have goes into one physical commit, in turns; a full lane is `Overloaded`; unknown outcomes are
    settled before later batches of the lane go. The store stays open: it is the caller's. The threads are daemons:
    close the lanes, or use them as a context manager, so that what was accepted is committed.
    """

    def __init__(
        self,
        store: ThreadJournalStore,
        *,
        workers: int | None = None,
        bounds: LaneBounds | None = None,
        patience: Patience = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make lanes over an open store. No thread runs before the first batch.

        Args:
            store: The store.
            workers: The thread cap. None: 1 where the store commits a group at once (`Feature.GROUP_COMMIT`), so that
                groups form while a commit is in flight; else 8, each of which serves one lane at a time.
            bounds: The bounds of queues and groups.
            patience: How often and how patiently a batch is sent again, and then settled.
            clock: Seconds on a monotonic clock, for pauses, deadlines and figures.

        Raises:
            ValueError: `workers` is below 1.
        """
        if workers is not None and workers < 1:
            raise ValueError("workers must be at least 1")
        grouping = store.capabilities.offers(Feature.GROUP_COMMIT)
        limits = store.capabilities.limits
        bounds = bounds or LaneBounds()
        self._store = store
        self._limits = limits
        self._workers = workers if workers is not None else 1 if grouping else 8
        self._clock = clock
        self._queue = LaneQueue(
            bounds,
            patience,
            group_batches_max=min(bounds.group_batches_max, limits.group_batches_max),
            group_lanes_max=bounds.group_batches_max if grouping else 1,
        )
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._space = threading.Condition(self._lock)
        self._space_calls: deque[Callable[[], None]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._commit = Stopwatch()

    def __enter__(self) -> Self:
        """Give the lanes themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what was accepted, and close."""
        self.close()

    # ------------------------------------------------------------------------------------------------------- public

    @property
    def limits(self) -> Limits:
        """The limits of the store below."""
        return self._limits

    def open(self, claim: WriterClaim) -> CommitLane:
        """Open the lane of a claim.

        Guarantees LANE-1: a thread has one lane; opening it again with the same claim gives the same lane, and a newer
        claim ends the older claim's lane. LANE-4: a lane that was closed by an error is opened again by a new claim
        only.

        Args:
            claim: A claim whose `last_seq` is the journal's last seq as the writer knows it.

        Returns:
            The lane's handle.

        Raises:
            WriterFenced: The claim's lane was closed by an error, or a newer claim's lane is open here.
            Overloaded: `lanes_max` lanes are open.
            StoreClosed: The lanes were closed.
        """
        with self._lock:
            lane, done = self._queue.open(claim)
        self._give(done)
        return CommitLane(self, lane)

    def figures(self) -> CommitFigures:
        """The figures of all lanes at this moment."""
        with self._lock:
            counters = self._queue.counters
            return CommitFigures(
                lanes=self._queue.lanes,
                workers=len(self._threads),
                accepted=counters.accepted,
                committed=counters.committed,
                failed=counters.failed,
                refused=counters.refused,
                queued_batches=counters.queued_batches,
                queued_bytes=counters.queued_bytes,
                groups=counters.groups,
                group_batches=counters.group_batches,
                group_batches_max=counters.group_batches_max,
                resent=counters.resent,
                settled=counters.settled,
                latency=counters.latency.figures(),
                commit=self._commit.figures(),
            )

    def when_space(self, call: Callable[[], None]) -> None:
        """Have a call made once, in a lane's thread, when batches have left the queues; at once where none waits.

        For those who must not block, and met `Overloaded`: they hand in again then. It must not block.

        Args:
            call: The call.
        """
        with self._lock:
            if self._queue.counters.queued_batches:
                self._space_calls.append(call)
                return
        call()

    def close(self, *, drain: bool = True, deadline_s: float = 30.0) -> bool:
        """Accept nothing more, commit what was accepted, end the threads. A second call is harmless.

        Args:
            drain: Whether batches that wait are still committed; else they are refused and never written.
            deadline_s: How long to wait, in seconds. What waits then is refused; what was sent and has no answer yet
                is `OutcomeUnknown`, and a commit in flight still gives its answer.

        Returns:
            Whether every accepted batch had its answer from the store.
        """
        until = self._clock() + deadline_s
        with self._lock:
            self._queue.ending = True
            done = [] if drain else self._queue.retire_all(StoreClosed("the lanes were closed"))
            self._work.notify_all()
            self._space.notify_all()
        self._give(done)
        with self._lock:
            while self._queue.counters.queued_batches or self._queue.flying:
                left = until - self._clock()
                if left <= 0:
                    break
                self._space.wait(left)
            done = self._queue.abandon_all()
            finished = not done and not self._queue.flying
            self._work.notify_all()
            calls, self._space_calls = self._space_calls, deque()
        self._give(done)
        for call in calls:
            call()
        return finished

    # ------------------------------------------------------------------------------------------- for the lanes' handles

    def submit(self, lane: Lane, batch: Batch, wait_s: float) -> Future[Receipt]:
        """Accept a batch; see `CommitLane.submit`."""
        size = self.measure(batch, lane.claim.key)
        until = self._clock() + wait_s
        with self._lock:
            while True:
                now = self._clock()
                try:
                    future = self._queue.accept(lane, batch, size, now).future
                except Overloaded:
                    if now >= until:
                        self._queue.refuse(lane)
                        raise
                else:
                    self._call_worker()
                    return future
                self._space.wait(until - now)

    def flush(self, lane: Lane) -> Future[Receipt | None]:
        """A future of the prefix accepted so far; see `CommitLane.flush`."""
        future: Future[Receipt | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if lane.entries:
                lane.entries[-1].waiters.append(future)
                return future
            closed, receipt = lane.closed, lane.receipt
        if closed is None or isinstance(closed, StoreClosed):
            future.set_result(receipt)
        else:
            future.set_exception(lane.refusal())
        return future

    def close_lane(self, lane: Lane) -> None:
        """Accept nothing more into a lane; see `CommitLane.close`."""
        with self._lock:
            self._queue.close_lane(lane, self._clock())
            self._work.notify()

    def lane_figures(self, lane: Lane) -> LaneFigures:
        """The figures of one lane at this moment."""
        with self._lock:
            return self._queue.figures(lane)

    def measure(self, batch: Batch, key: ThreadKey) -> int:
        """A batch's bytes as they are counted; what the store would refuse by its size is refused here (VAL-4)."""
        limits, events = self._limits, batch.events
        if len(events) > limits.batch_events_max:
            limits.check("batch_events_max", len(events), key.name)
        size = largest = 0
        for event in events:
            payload = len(event.payload)
            largest = max(largest, payload)
            size += payload + len(event.event_id) + len(event.type) + _EVENT_BYTES
            size += len(event.run_id or "") + len(event.turn_id or "")
        if largest > limits.value_bytes_max:
            limits.check("value_bytes_max", largest, key.name)
        if size * 2 > limits.batch_bytes_max:
            size = len(encode_batch(batch))
            limits.check("batch_bytes_max", size, key.name)
        return size

    # ------------------------------------------------------------------------------------------------------ threads

    def _call_worker(self) -> None:
        if self._idle or len(self._threads) >= self._workers:
            self._work.notify()
            return
        thread = threading.Thread(target=self._serve, name=f"statebook-lanes-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                work = self._next()
            if work is None:
                return
            try:
                self._give(self._carry_out(work))
            finally:
                with self._lock:
                    self._queue.release(work, self._clock())
                    if self._queue.more:
                        self._call_worker()
                    self._space.notify_all()
                    calls, self._space_calls = self._space_calls, deque()
            for call in calls:
                call()

    def _next(self) -> Work | None:
        """Wait for the next physical commit; None where there will be none. Under the lock."""
        while True:
            work = self._queue.take(self._clock())
            if work is not None:
                if self._queue.more:
                    self._call_worker()
                return work
            if self._queue.ending and not self._queue.counters.queued_batches:
                return None
            self._idle += 1
            try:
                self._work.wait(self._queue.wake_in(self._clock()))
            finally:
                self._idle -= 1

    def _carry_out(self, work: Work) -> list[Done]:
        started = self._clock()
        try:
            if isinstance(work, Question):
                answer = self._ask(work)
                with self._lock:
                    return self._queue.settled(work, answer, self._clock())
            outcomes = self._commit_group(work)
        except Exception as error:  # noqa: BLE001 - a store that breaks the contract must leave nobody waiting
            with self._lock:
                return self._queue.lost(work, error)
        with self._lock:
            now = self._clock()
            self._commit.add(now - started)
            return self._queue.answered(work, outcomes, now)

    def _commit_group(self, group: Group) -> tuple[AppendOutcome, ...]:
        try:
            outcomes = self._store.append_many(group.requests)
        except StatebookError as error:
            return (error,) * len(group.requests)
        if len(outcomes) != len(group.requests):
            raise ValueError(f"{len(outcomes)} answers to {len(group.requests)} requests")
        return outcomes

    def _ask(self, question: Question) -> Receipt | StatebookError | None:
        entry = question.entry
        try:
            return self._store.settle(question.lane.claim, entry.batch.batch_id, entry.base)
        except StatebookError as error:
            return error

    @staticmethod
    def _give(done: Iterable[Done]) -> None:
        """Give answers to those who wait for them; outside of the lock, since callbacks run here."""
        for entry, outcome in done:
            futures: tuple[Future[Receipt] | Future[Receipt | None], ...] = (entry.future, *entry.waiters)
            for future in futures:
                if isinstance(outcome, Receipt):
                    future.set_result(outcome)
                else:
                    future.set_exception(outcome)


class CommitLane:
    """The lane of one claim: hands batches in, and waits for what was handed in. Safe from many threads."""

    def __init__(self, lanes: CommitLanes, lane: Lane) -> None:
        """Make a handle; `CommitLanes.open` does."""
        self._lanes = lanes
        self._lane = lane

    @property
    def lanes(self) -> CommitLanes:
        """The lanes that it belongs to."""
        return self._lanes

    @property
    def claim(self) -> WriterClaim:
        """The claim that it appends through."""
        return self._lane.claim

    @property
    def committed_seq(self) -> int:
        """The last seq that the lane knows from its claim and receipts."""
        return self._lane.base

    @property
    def error(self) -> StatebookError | None:
        """Why the lane accepts nothing more, or None."""
        return self._lane.closed

    def submit(self, batch: Batch, *, wait_s: float = 0.0) -> Future[Receipt]:
        """Hand in a batch behind everything handed in before.

        Guarantees LANE-1: accepted and answered, or refused and never written. LANE-3: the future cannot be cancelled.
        LANE-4: after an error that was not a conflict tried again, everything is refused at once until a new claim.

        Args:
            batch: The batch. Sending one again that is in the journal already gives its receipt again.
            wait_s: How long to wait for a place in a full queue, in seconds.

        Returns:
            The future of its receipt; `replayed` also where the lane itself had to send it again. Callbacks run in
            the lane's thread and must not block. It raises what `ThreadJournalStore.append` raises; `OutcomeUnknown`
            only where sending again and settling went on failing.

        Raises:
            Overloaded: The queue is full, by batches or bytes; nothing was accepted.
            LimitExceeded: The batch is too large; nothing was accepted, and the lane goes on.
            WriterFenced: The lane was closed by an error, which is the cause.
            StoreClosed: The lane or the lanes were closed.
        """
        return self._lanes.submit(self._lane, batch, wait_s)

    def measure(self, batch: Batch) -> int:
        """Hold a batch against the store's limits, and give its bytes as they are counted. Accepts nothing.

        Guarantees VAL-4: what is too large is refused before any effect.

        Args:
            batch: The batch.

        Returns:
            Its bytes, or somewhat more.

        Raises:
            LimitExceeded: It has too many events or bytes, or a payload is too large.
        """
        return self._lanes.measure(batch, self._lane.claim.key)

    def flush(self) -> Future[Receipt | None]:
        """Wait for everything handed in before this call.

        Guarantees LANE-3: the prefix accepted so far, whoever handed it in; its outcome is shared by all who wait.

        Returns:
            A future, which cannot be cancelled, of the last receipt; None where nothing was ever handed in. It raises
            the error of the last batch of the prefix.
        """
        return self._lanes.flush(self._lane)

    def figures(self) -> LaneFigures:
        """The figures of this lane at this moment."""
        return self._lanes.lane_figures(self._lane)

    def close(self) -> None:
        """Accept nothing more. What was accepted is committed; `flush` still waits for it. No claim is released."""
        self._lanes.close_lane(self._lane)
