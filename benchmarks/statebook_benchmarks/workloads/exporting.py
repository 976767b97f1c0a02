"""An exporter behind writers: how long an acknowledged event waits until a sink has it."""

from __future__ import annotations

import time
from queue import SimpleQueue
from threading import Thread

from statebook import RecordedEvent, StatebookError
from statebook.threads import CallableSink, JournalExporter
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.load import Outcome
from statebook_benchmarks.validity import EXAMPLES_MAX, Finding
from statebook_benchmarks.workloads.workload import Site, ThreadWriter, Workload


class ExportWorkload(Workload):
    """One append an operation; one thread drains the exporters of all journals that have something new."""

    def __init__(self, site: Site) -> None:
        self._store = site.backend.open_journal()
        self.events_per_op = site.parameters.batch_events
        self._writers = [
            ThreadWriter(self._store, f"{site.name}-{thread}", site.parameters)
            for thread in range(site.parameters.threads)
        ]
        self._acked_ns: dict[str, int] = {}
        self._delivered: list[list[str]] = [[] for _ in self._writers]
        self._delivered_ns: dict[str, int] = {}
        self._exporters = [
            JournalExporter(self._store, writer.journal.key, "bench", CallableSink(self._sink(thread)))
            for thread, writer in enumerate(self._writers)
        ]
        self._ready: SimpleQueue[int | None] = SimpleQueue()
        self._exporting = Thread(target=self._export, daemon=True)
        self._failed: list[StatebookError] = []

    def _sink(self, thread: int) -> _Sink:
        return _Sink(self._delivered[thread], self._delivered_ns)

    def prepare(self) -> None:
        for writer in self._writers:
            writer.claim()
        self._exporting.start()

    def __call__(self, thread: int) -> Outcome:
        writer = self._writers[thread]
        batch = writer.batches.next()
        writer.append(batch)
        now = time.perf_counter_ns()
        for event in batch.events:
            self._acked_ns[event.event_id] = now
        self._ready.put(thread)
        return Outcome.DONE

    def _export(self) -> None:
        while (thread := self._ready.get()) is not None:
            try:
                self._exporters[thread].drain()
            except StatebookError as error:
                self._failed.append(error)

    def settle_down(self) -> None:
        self._ready.put(None)
        self._exporting.join()
        for exporter in self._exporters:
            exporter.drain()

    def extra(self) -> tuple[tuple[str, Histogram], ...]:
        lag = Histogram(
            self._delivered_ns[event_id] - acked
            for event_id, acked in self._acked_ns.items()
            if event_id in self._delivered_ns
        )
        return (("export_lag", lag),)

    def check(self) -> list[Finding]:
        findings = [finding for writer in self._writers for finding in writer.check()]
        for writer, delivered in zip(self._writers, self._delivered, strict=True):
            first = list(dict.fromkeys(delivered))
            unknown = frozenset(writer.unknown)
            wanted = writer.acknowledged
            if [event_id for event_id in first if event_id not in unknown] != wanted:
                lost = [event_id for event_id in wanted if event_id not in frozenset(first)]
                detail = f"the sink has {len(first)} of {len(wanted)}, or in another order: {lost[:EXAMPLES_MAX]}"
                findings.append(Finding("export", writer.journal.key.thread_id, max(1, len(lost)), detail))
        return findings

    def close(self) -> None:
        self._store.close()


class _Sink:
    """Takes the events of one thread, and notes when each came first."""

    def __init__(self, delivered: list[str], delivered_ns: dict[str, int]) -> None:
        self._delivered = delivered
        self._delivered_ns = delivered_ns

    def __call__(self, event: RecordedEvent) -> None:
        self._delivered.append(event.event_id)
        self._delivered_ns.setdefault(event.event_id, time.perf_counter_ns())
