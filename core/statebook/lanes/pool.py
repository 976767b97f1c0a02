"""A bounded pool of threads for calls: the maintenance and lease lanes, and every other call that must not block."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from statebook.errors import BackendUnavailable, Overloaded, StoreClosed
from statebook.lanes.figures import PoolFigures, Stopwatch

T = TypeVar("T")


class WorkPool:
    """Runs calls in at most so many threads, with at most so many calls waiting. Safe from many threads.

    Guarantees LANE-1 for calls: a full pool is `Overloaded`, at once or after a deadline; what was accepted is run.
    LANE-5: work of one kind never waits behind another kind's when each has a pool of its own. The threads are daemons:
    close the pool, or use it as a context manager, so that accepted calls are finished.
    """

    def __init__(
        self,
        name: str,
        *,
        workers_max: int = 4,
        queue_max: int = 1_024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a pool. No thread runs before the first call.

        Args:
            name: What it is for, in errors and thread names.
            workers_max: The thread cap.
            queue_max: How many accepted calls may wait for a thread.
            clock: Seconds on a monotonic clock.

        Raises:
            ValueError: A bound is below 1.
        """
        if workers_max < 1 or queue_max < 1:
            raise ValueError("workers_max and queue_max must be at least 1")
        self.name = name
        self._workers_max = workers_max
        self._queue_max = queue_max
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._space = threading.Condition(self._lock)
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._running = self._accepted = self._finished = self._refused = 0
        self._latency = Stopwatch()
        self._closed = False

    def __enter__(self) -> Self:
        """Give the pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what was accepted, and close."""
        self.close()

    def submit(self, call: Callable[[], T], *, wait_s: float = 0.0) -> Future[T]:
        """Hand in a call.

        Guarantees LANE-1: accepted, or `Overloaded` and never run. LANE-3: the future cannot be cancelled, so that a
        waiter that gives up changes nothing.

        Args:
            call: The call. Its result or error becomes the future's.
            wait_s: How long to wait for a place in a full queue, in seconds.

        Returns:
            The future of its result. Its callbacks run in the pool's thread.

        Raises:
            Overloaded: The queue is full; the call is not run.
            StoreClosed: The pool was closed.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        accepted_at = self._clock()

        def run() -> None:
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - raised again where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)
            self._ended(accepted_at)

        def drop() -> None:
            future.set_exception(BackendUnavailable(f"the {self.name} pool was closed before this call was run"))

        with self._lock:
            self._await_place(accepted_at + wait_s)
            self._accepted += 1
            self._waiting.append((run, drop))
            if self._running + len(self._waiting) > len(self._threads) and len(self._threads) < self._workers_max:
                self._start()
            self._work.notify()
        return future

    def _await_place(self, until: float) -> None:
        while True:
            if self._closed:
                raise StoreClosed(f"the {self.name} pool was closed")
            if len(self._waiting) < self._queue_max or self._running + len(self._waiting) < len(self._threads):
                return
            left = until - self._clock()
            if left <= 0:
                self._refused += 1
                raise Overloaded(
                    f"the {self.name} pool is full: {self._queue_max} calls wait for {self._workers_max} threads; "
                    "call again later, or give it more"
                )
            self._space.wait(left)

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"statebook-{self.name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    if self._closed:
                        return
                    self._work.wait()
                run, _ = self._waiting.popleft()
                self._running += 1
                self._space.notify()
            run()
            del run

    def _ended(self, accepted_at: float) -> None:
        with self._lock:
            self._running -= 1
            self._finished += 1
            self._latency.add(self._clock() - accepted_at)
            self._space.notify_all()

    def figures(self) -> PoolFigures:
        """The figures at this moment."""
        with self._lock:
            return PoolFigures(
                workers=len(self._threads),
                accepted=self._accepted,
                finished=self._finished,
                refused=self._refused,
                queued=len(self._waiting),
                running=self._running,
                latency=self._latency.figures(),
            )

    def close(self, *, drain: bool = True, deadline_s: float = 30.0) -> bool:
        """Accept nothing more, and end the threads. A second call is harmless.

        Args:
            drain: Whether calls that wait are still run; else their futures say `BackendUnavailable`.
            deadline_s: How long to wait for the calls, in seconds. What still waits then is dropped in the same way.

        Returns:
            Whether every accepted call came back.
        """
        until = self._clock() + deadline_s
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._space.notify_all()
            dropped = [] if drain else self._drop()
        for drop in dropped:
            drop()
        with self._lock:
            while self._waiting or self._running:
                left = until - self._clock()
                if left <= 0:
                    break
                self._space.wait(left)
            dropped = self._drop()
            finished = not self._running and not dropped
        for drop in dropped:
            drop()
        return finished

    def _drop(self) -> list[Callable[[], None]]:
        dropped = [drop for _, drop in self._waiting]
        self._waiting.clear()
        return dropped


class WorkPools:
    """Pools for calls, for maintenance and for leases, each with a thread cap and a queue bound of its own (LANE-5).

    Attributes:
        calls: Reads, state, cursors and appends.
        maintenance: Listing, trim, collect, verify, delete and purge.
        leases: Claims, heartbeats and releases: they never wait behind anything else.
    """

    def __init__(
        self,
        *,
        calls: WorkPool | None = None,
        maintenance: WorkPool | None = None,
        leases: WorkPool | None = None,
    ) -> None:
        """Take pools, or make them.

        Args:
            calls: The pool, or None for one of 8 threads and 1,024 places.
            maintenance: The pool, or None for one of 2 threads and 64 places.
            leases: The pool, or None for one of 2 threads and 1,024 places.
        """
        self.calls = calls or WorkPool("calls", workers_max=8)
        self.maintenance = maintenance or WorkPool("maintenance", workers_max=2, queue_max=64)
        self.leases = leases or WorkPool("leases", workers_max=2)

    def __enter__(self) -> Self:
        """Give the pools themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what was accepted, and close."""
        self.close()

    def close(self, *, drain: bool = True, deadline_s: float = 30.0) -> bool:
        """Close all three; see `WorkPool.close`.

        Args:
            drain: Whether calls that wait are still run.
            deadline_s: How long to wait for each pool, in seconds.

        Returns:
            Whether every accepted call came back.
        """
        pools = (self.calls, self.maintenance, self.leases)
        closed = [pool.close(drain=drain, deadline_s=deadline_s) for pool in pools]
        return all(closed)
