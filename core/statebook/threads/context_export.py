"""ContextExport: drains an exporter in a pool while an invocation runs, after each of its commits (J16)."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from statebook.errors import StatebookError
from statebook.lanes.pool import WorkPool
from statebook.threads.export import JournalExporter
from statebook.threads.exporting import DrainReport


class ContextExport:
    """Exports to a sink in the call's context during execution. Safe from many threads; blocks in none.

    A recorder nudges it after each commit, and it drains the exporter in a pool: one drain at a time, those that are
    asked for meanwhile become one. Guarantees CURSOR-4, since it is the persistent cursor that it moves: when the sink
    fails, or the process does, the next drain goes on where the sink has acknowledged.
    """

    def __init__(self, exporter: JournalExporter, pool: WorkPool) -> None:
        """Take an exporter and a pool. No I/O.

        Args:
            exporter: The exporter of the thread that is recorded, with the sink.
            pool: Where it drains.
        """
        self._exporter = exporter
        self._pool = pool
        self._lock = threading.Lock()
        self._running = False
        self._wanted = False
        self._waiters: list[Future[DrainReport | None]] = []
        self._error: BaseException | None = None
        self._report: DrainReport | None = None

    @property
    def error(self) -> BaseException | None:
        """Why the last drain failed, or None where it did not."""
        return self._error

    @property
    def report(self) -> DrainReport | None:
        """What the last drain that did not fail has done, or None."""
        return self._report

    def nudge(self) -> None:
        """Have what was committed exported soon. Never blocks and never raises: a full pool leaves it to the next."""
        with self._lock:
            self._wanted = True
        self._start()

    def finish(self) -> Future[DrainReport | None]:
        """Drain once more, after this call.

        Returns:
            A future of the drain's report; None where it failed, see `error`. It never raises.
        """
        future: Future[DrainReport | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._wanted = True
            self._waiters.append(future)
        self._start()
        return future

    def _start(self) -> None:
        with self._lock:
            if self._running or not self._wanted:
                return
            self._running = True
        try:
            self._pool.submit(self._drain)
        except StatebookError as error:  # the pool is full or closed: the cursor keeps its place
            with self._lock:
                self._running, self._error = False, error
                waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set_result(None)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._running = False
                    return
                self._wanted = False
                waiters, self._waiters = self._waiters, []
            report: DrainReport | None = None
            error: BaseException | None = None
            try:
                report = self._exporter.drain()
            except Exception as raised:  # noqa: BLE001 - a sink may raise anything; kept for whoever asks
                error = raised
            with self._lock:
                self._error = error
                self._report = report or self._report
            for waiter in waiters:
                waiter.set_result(report)
