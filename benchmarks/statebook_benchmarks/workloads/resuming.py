"""Workloads of restarts: resuming from the last checkpoint, and taking over from a writer that is gone."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

from statebook import StatebookError, ThreadJournal, WriterFenced
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.load import Outcome
from statebook_benchmarks.validity import Finding, check_journal
from statebook_benchmarks.workloads.workload import Site, ThreadWriter, Workload

BEHIND: Final = 100
"""Events from the checkpoint to the end of the journal, itself included."""
LENGTH: Final = 1_000
"""Events of a journal where no length is asked for."""


class ResumeWorkload(Workload):
    """A fresh handle an operation: head, last checkpoint, and the events behind it, decoded and verified."""

    events_per_op = BEHIND

    def __init__(self, site: Site) -> None:
        self._store = site.backend.open_journal()
        self._parameters = site.parameters
        self._writers = [
            ThreadWriter(self._store, f"{site.name}-{thread}", site.parameters)
            for thread in range(site.parameters.threads)
        ]
        self._wrong: list[Finding] = []

    def prepare(self) -> None:
        length = max(BEHIND, self._parameters.journal_len or LENGTH)
        for writer in self._writers:
            writer.claim()
            writer.preload(length, self._parameters.event_bytes, checkpoint_behind=BEHIND)

    def __call__(self, thread: int) -> Outcome:
        key = self._writers[thread].journal.key
        events = list(ThreadJournal(self._store, key).read_from_checkpoint())
        if len(events) != BEHIND or events[0].type != "state/checkpoint":
            self._wrong.append(Finding("loss", key.thread_id, 1, f"resuming gave {len(events)} events, not {BEHIND}"))
        return Outcome.DONE

    def check(self) -> list[Finding]:
        return [*self._wrong, *(finding for writer in self._writers for finding in writer.check())]

    def close(self) -> None:
        self._store.close()


class TakeoverWorkload(Workload):
    """A fresh store an operation: open it, claim, append. The writer before is gone without a release.

    The time counts from the decision to take over: how long an observer waits for a heartbeat is a choice of the user.
    Afterwards the old writer tries once more, and must be fenced.
    """

    events_per_op = 1

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = site.backend.open_journal()
        self._threads = [f"{site.name}-{thread}" for thread in range(site.parameters.threads)]
        self._current: list[ThreadWriter] = []
        self._acknowledged: list[list[str]] = [[] for _ in self._threads]
        self._unknown: list[list[str]] = [[] for _ in self._threads]
        self._turns = [0] * len(self._threads)
        self._times = Histogram()
        self._lock = Lock()
        self._wrong: list[Finding] = []

    def prepare(self) -> None:
        for thread, name in enumerate(self._threads):
            writer = ThreadWriter(self._site.backend.open_journal(), name, self._site.parameters)
            writer.claim()
            self._write(writer, thread)
            self._current.append(writer)

    def __call__(self, thread: int) -> Outcome:
        old, name = self._current[thread], self._threads[thread]
        started = time.perf_counter_ns()
        new = ThreadWriter(self._site.backend.open_journal(), name, self._site.parameters)
        try:
            new.claim(f"bench-{self._turns[thread]}")
            self._write(new, thread)
        except StatebookError:
            new.store.close()
            raise
        taken = time.perf_counter_ns() - started
        with self._lock:
            self._times.record(taken)
        self._current[thread] = new
        self._fenced(old, name)
        old.store.close()
        return Outcome.DONE

    def _write(self, writer: ThreadWriter, thread: int) -> None:
        self._turns[thread] += 1
        batch_id = f"{self._threads[thread]}-turn{self._turns[thread]}"
        event = writer.journal.event("message/text", "x" * self._site.parameters.event_bytes, event_id=batch_id)
        try:
            writer.journal.append(event, batch_id=batch_id)
        except StatebookError:
            self._unknown[thread].append(batch_id)
            raise
        self._acknowledged[thread].append(batch_id)

    def _fenced(self, old: ThreadWriter, name: str) -> None:
        try:
            old.journal.append(old.journal.event("message/text", "late"))
        except WriterFenced:
            return
        self._wrong.append(Finding("fence", name, 1, "a writer whose journal was taken over could still append"))

    def extra(self) -> tuple[tuple[str, Histogram], ...]:
        return (("takeover", self._times),)

    def check(self) -> list[Finding]:
        findings = list(self._wrong)
        for writer, acknowledged, unknown in zip(self._current, self._acknowledged, self._unknown, strict=True):
            findings.extend(check_journal(self._store, writer.journal.key, acknowledged, unknown))
        return findings

    def close(self) -> None:
        for writer in self._current:
            writer.store.close()
        self._store.close()
