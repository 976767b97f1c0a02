"""The figures of the journal: statebook beside the raw engine in the same run, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Barrier, Thread
from typing import Final

import msgspec

from statebook import (
    AppendRequest,
    Batch,
    Receipt,
    StatebookError,
    StoreUrl,
    ThreadJournalStore,
    ThreadKey,
    WriterClaim,
    load_backend,
)
from statebook_benchmarks.content import EVENT_BYTES, Batches, thread_key
from statebook_benchmarks.interleave import Contender, Timing, interleave
from statebook_benchmarks.raw import RawEngine, RawLane, raw_engine
from statebook_benchmarks.stats import Interval, bootstrap, paired_ratio
from statebook_benchmarks.validity import Finding, check_journal

GROUP: Final = 64
"""Threads of one group."""
GROUP_EVENTS: Final = 8
"""Events of each batch of a group."""
WRITERS: Final = 16
"""Independent writers of one process."""
READ_LENGTH: Final = 10_000
"""Events of the journal that is read."""
READ_PAGE: Final = 100
"""Events of a page that is read."""


class Case(msgspec.Struct, frozen=True):
    """One thing that is measured.

    Attributes:
        name: Its name.
        title: What one operation is.
        events: Events an operation.
    """

    name: str
    title: str
    events: int


CASES: Final = (
    Case("append", f"one event of {EVENT_BYTES} bytes, one writer, one commit", 1),
    Case("group", f"append_many: {GROUP} threads, a batch of {GROUP_EVENTS} each", GROUP * GROUP_EVENTS),
    Case("writers", f"one event of {EVENT_BYTES} bytes, {WRITERS} writers in {WRITERS} threads", 1),
    Case("read", f"read_after: {READ_PAGE} of {READ_LENGTH:,} events, decoded and verified", READ_PAGE),
    Case("load", f"read all of {READ_LENGTH:,} events, decoded and verified", READ_LENGTH),
)
"""The cases, in the order of the table."""


class Figure(msgspec.Struct, frozen=True):
    """One measured case of one backend.

    Attributes:
        case: The case.
        backend: The URL scheme.
        url: The URL, without secrets.
        durability: What an acknowledgement promises, with the setting that gives it.
        floor_work: What one operation of the raw engine does, or None where there is none beside it.
        ours: The rounds of statebook.
        floor: The rounds of the raw engine, or None.
        microseconds: Microseconds an operation of statebook.
        floor_microseconds: The same of the raw engine, or None.
        events_per_second: Events a second of statebook.
        ratio: The speed of statebook as a part of the raw engine's, or None.
    """

    case: Case
    backend: str
    url: str
    durability: str
    floor_work: str | None
    ours: Timing
    floor: Timing | None
    microseconds: Interval
    floor_microseconds: Interval | None
    events_per_second: float
    ratio: Interval | None


class BackendFigures(msgspec.Struct, frozen=True):
    """All figures of one backend.

    Attributes:
        figures: One a case.
        findings: What reading back found: any finding makes the figures INVALID.
    """

    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]


class Effort(msgspec.Struct, frozen=True):
    """How long to measure.

    Attributes:
        rounds: Rounds that count.
        round_s: Seconds of one contender in a round, about.
    """

    rounds: int = 15
    round_s: float = 0.15


def measure_backend(
    url: str,
    cases: Sequence[str],
    effort: Effort,
    *,
    name: str,
    progress: Callable[[str, int, int], None],
) -> BackendFigures:
    """Measure one backend.

    Args:
        url: The store; the benchmark works in a fresh namespace of it, and removes it again.
        cases: The names of the cases.
        effort: How long to measure.
        name: A fresh name for namespace, tables and keys.
        progress: Called with the case, the runs done and the runs in all.

    Returns:
        The figures.

    Raises:
        StatebookError: The store cannot be opened, or failed under way.
        MissingDriver: A client library is not installed.
    """
    target = StoreUrl.parse(url)
    backend = load_backend(target.with_option("namespace", name))
    floor = raw_engine(target, name, GROUP + 1 + WRITERS)
    try:
        with closing(backend.open_journal()) as store:
            return _Bench(store, floor, target.redacted(), name, effort, progress).run(cases)
    finally:
        if floor is not None:
            floor.destroy()
        backend.destroy_namespace()


class _Bench:
    """One backend under measurement."""

    def __init__(
        self,
        store: ThreadJournalStore,
        floor: RawEngine | None,
        shown: str,
        name: str,
        effort: Effort,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._store = store
        self._floor = floor
        self._shown = shown
        self._name = name
        self._effort = effort
        self._progress = progress
        self._writers: list[_Writer] = []

    def run(self, cases: Sequence[str]) -> BackendFigures:
        figures = tuple(self._measure(case) for case in CASES if case.name in cases)
        findings = [finding for writer in self._writers for finding in writer.check(self._store)]
        return BackendFigures(figures, tuple(findings))

    def _measure(self, case: Case) -> Figure:
        lanes: list[RawLane] = []
        try:
            contenders = self._contenders(case, lanes)
            runs = len(contenders) * (self._effort.rounds + 1)
            done = 0

            def count() -> None:
                nonlocal done
                done += 1
                self._progress(case.name, done, runs)

            timings = interleave(contenders, rounds=self._effort.rounds, round_s=self._effort.round_s, progress=count)
        finally:
            for lane in lanes:
                lane.close()
        return self._figure(case, timings)

    def _figure(self, case: Case, timings: tuple[Timing, ...]) -> Figure:
        ours, floor = timings[0], timings[1] if len(timings) > 1 else None
        capabilities = self._store.capabilities
        taken = bootstrap([seconds * 1e6 for seconds in ours.seconds_per_op])
        return Figure(
            case=case,
            backend=capabilities.backend,
            url=self._shown,
            durability=f"{capabilities.durability.value} ({capabilities.durability_setting})",
            floor_work=None if self._floor is None or floor is None else self._floor.work,
            ours=ours,
            floor=floor,
            microseconds=taken,
            floor_microseconds=None if floor is None else bootstrap([s * 1e6 for s in floor.seconds_per_op]),
            events_per_second=case.events / taken.estimate * 1e6,
            ratio=None if floor is None else paired_ratio(floor.seconds_per_op, ours.seconds_per_op),
        )

    def _contenders(self, case: Case, lanes: list[RawLane]) -> list[Contender]:
        contenders: list[Contender] = []
        if case.name in ("read", "load"):
            writer = self._writer(case.name, events=READ_PAGE)
            while writer.base < READ_LENGTH:
                writer.append(self._store)
            return [_Read(self._store, writer.key, whole=case.name == "load")]
        if case.name == "append":
            contenders = [_Append(self._store, self._writer("append", events=1))]
        elif case.name == "group":
            writers = [self._writer(f"group-{number}", events=GROUP_EVENTS) for number in range(GROUP)]
            contenders = [_Group(self._store, writers)]
        else:
            writers = [self._writer(f"writer-{number}", events=1) for number in range(WRITERS)]
            contenders = [_Writers([_Append(self._store, writer) for writer in writers])]
        if self._floor is not None:
            contenders.append(self._floor_of(case, self._floor, lanes))
        return contenders

    def _floor_of(self, case: Case, floor: RawEngine, lanes: list[RawLane]) -> Contender:
        lanes.append(floor.lane())
        if case.name == "append":
            return _RawAppend(lanes[0], GROUP, "append")
        if case.name == "group":
            return _RawGroup(lanes[0])
        lanes.extend(floor.lane() for _ in range(WRITERS - 1))
        # Thread GROUP belongs to the case `append`, whose lane knows its head: the writers have the others.
        return _Writers([_RawAppend(lane, GROUP + 1 + n, f"writer-{n}") for n, lane in enumerate(lanes)], name="raw")

    def _writer(self, name: str, *, events: int) -> _Writer:
        key = thread_key(name)
        writer = _Writer(self._store.claim(key, "bench"), Batches(name, events=events, event_bytes=EVENT_BYTES))
        self._writers.append(writer)
        return writer


class _Writer:
    """One thread's writer: claim, base, and what the journal must hold."""

    def __init__(self, claim: WriterClaim, batches: Batches) -> None:
        self.claim = claim
        self.base = claim.last_seq
        self.batches = batches
        self._sent: list[str] = []

    @property
    def key(self) -> ThreadKey:
        return self.claim.key

    def append(self, store: ThreadJournalStore) -> None:
        batch = self.batches.next()
        self.committed(batch, store.append(self.claim, batch, self.base))

    def request(self) -> AppendRequest:
        return AppendRequest(self.claim, self.batches.next(), self.base)

    def committed(self, batch: Batch, outcome: Receipt | StatebookError) -> None:
        if not isinstance(outcome, Receipt):
            raise outcome
        self.base = outcome.last_seq
        self._sent.append(batch.batch_id)

    def check(self, store: ThreadJournalStore) -> list[Finding]:
        events = self.batches.events
        return check_journal(store, self.key, [f"{batch}.{n}" for batch in self._sent for n in range(events)])


class _Append:
    name = "statebook"

    def __init__(self, store: ThreadJournalStore, writer: _Writer) -> None:
        self._store = store
        self._writer = writer

    def run(self, operations: int) -> float:
        store, append = self._store, self._writer.append
        started = time.perf_counter()
        for _ in range(operations):
            append(store)
        return time.perf_counter() - started


class _Group:
    name = "statebook"

    def __init__(self, store: ThreadJournalStore, writers: Sequence[_Writer]) -> None:
        self._store = store
        self._writers = writers

    def run(self, operations: int) -> float:
        started = time.perf_counter()
        for _ in range(operations):
            requests = [writer.request() for writer in self._writers]
            for writer, request, outcome in zip(
                self._writers, requests, self._store.append_many(requests), strict=True
            ):
                writer.committed(request.batch, outcome)
        return time.perf_counter() - started


class _Read:
    name = "statebook"

    def __init__(self, store: ThreadJournalStore, key: ThreadKey, *, whole: bool) -> None:
        self._store = store
        self._key = key
        self._whole = whole
        self._at = 0

    def run(self, operations: int) -> float:
        read = self._load if self._whole else self._page
        started = time.perf_counter()
        for _ in range(operations):
            read()
        return time.perf_counter() - started

    def _page(self) -> None:
        self._at = (self._at + 3_301) % (READ_LENGTH - READ_PAGE)
        if len(self._store.read_after(self._key, self._at, READ_PAGE).events) != READ_PAGE:
            raise RuntimeError("a page is shorter than the journal")

    def _load(self) -> None:
        if len(self._store.read_after(self._key, 0, READ_LENGTH).events) != READ_LENGTH:
            raise RuntimeError("the journal is shorter than what was written")


class _Writers:
    """Many writers at once, each in a thread; seconds an operation are those of all together."""

    def __init__(self, writers: Sequence[Contender], name: str = "statebook") -> None:
        self.name = name
        self._writers = writers

    def run(self, operations: int) -> float:
        each = max(1, operations // len(self._writers))
        barrier = Barrier(len(self._writers) + 1)
        failed: list[BaseException] = []

        def write(writer: Contender) -> None:
            barrier.wait()
            try:
                writer.run(each)
            except BaseException as error:
                failed.append(error)
                raise

        threads = [Thread(target=write, args=(writer,), daemon=True) for writer in self._writers]
        for thread in threads:
            thread.start()
        barrier.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        if failed:
            raise failed[0]
        return seconds * operations / (each * len(self._writers))


class _RawAppend:
    name = "raw"

    def __init__(self, lane: RawLane, thread: int, name: str) -> None:
        self._lane = lane
        self._thread = thread
        self._batches = Batches(name, events=1, event_bytes=EVENT_BYTES)

    def run(self, operations: int) -> float:
        append, thread = self._lane.append, self._thread
        bodies = [self._batches.body() for _ in range(operations)]
        started = time.perf_counter()
        for body in bodies:
            append(thread, body)
        return time.perf_counter() - started


class _RawGroup:
    name = "raw"

    def __init__(self, lane: RawLane) -> None:
        self._lane = lane
        self._batches = Batches("group", events=GROUP_EVENTS, event_bytes=EVENT_BYTES)

    def run(self, operations: int) -> float:
        groups = [[self._batches.body() for _ in range(GROUP)] for _ in range(operations)]
        started = time.perf_counter()
        for bodies in groups:
            self._lane.append_group(bodies)
        return time.perf_counter() - started
