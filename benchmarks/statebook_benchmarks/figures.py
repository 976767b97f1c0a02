"""The figures of the journal: statebook beside the raw engine in the same run, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Final

import msgspec

from statebook import StoreUrl, ThreadJournalStore, load_backend
from statebook_benchmarks.contenders import (
    GROUP,
    GROUP_EVENTS,
    READ_LENGTH,
    READ_PAGE,
    TASKS,
    WRITERS,
    AsyncTasks,
    JournalWriter,
    RawAppends,
    RawGroups,
    StoreAppends,
    StoreGroups,
    StoreReads,
    Together,
)
from statebook_benchmarks.content import EVENT_BYTES, Batches, thread_key
from statebook_benchmarks.interleave import Contender, Timing, interleave
from statebook_benchmarks.raw import RawEngine, raw_engine
from statebook_benchmarks.stats import Interval, bootstrap, paired_ratio
from statebook_benchmarks.validity import Finding


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
    Case("aio", f"one event of {EVENT_BYTES} bytes, {TASKS} asyncio tasks over commit lanes", 1),
    Case(
        "read",
        f"read_after: {READ_PAGE} of {READ_LENGTH:,} events anywhere: two batches of {READ_PAGE}",
        READ_PAGE,
    ),
    Case("page", "the same from where a page ended: one batch", READ_PAGE),
    Case("turns", f"the same anywhere in a journal of batches of {GROUP_EVENTS}, as turns append them", READ_PAGE),
    Case("load", f"read all of {READ_LENGTH:,} events, decoded and verified", READ_LENGTH),
)
"""The cases, in the order of the table."""

_READS: Final = {"read": READ_PAGE, "page": READ_PAGE, "turns": GROUP_EVENTS, "load": READ_PAGE}
"""The cases that read, and how many events the batches of their journal have."""


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
        cpu_microseconds: Processor microseconds an operation of statebook, in this process.
        cpu_ratio: The same ratio by processor time: what other work on the machine does not change.
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
    cpu_microseconds: Interval
    cpu_ratio: Interval | None

    @property
    def promise(self) -> str:
        """What an acknowledgement promises, without the setting: `none`, `process` or `host`."""
        return self.durability.partition(" ")[0]


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
        self._writers: list[JournalWriter] = []

    def run(self, cases: Sequence[str]) -> BackendFigures:
        figures = tuple(self._measure(case) for case in CASES if case.name in cases)
        findings = [finding for writer in self._writers for finding in writer.check(self._store)]
        return BackendFigures(figures, tuple(findings))

    def _measure(self, case: Case) -> Figure:
        with ExitStack() as stack:
            contenders = self._contenders(case, stack)
            runs = len(contenders) * (self._effort.rounds + 1)
            done = 0

            def count() -> None:
                nonlocal done
                done += 1
                self._progress(case.name, done, runs)

            timings = interleave(contenders, rounds=self._effort.rounds, round_s=self._effort.round_s, progress=count)
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
            floor_work=None if floor is None else self._floor_work(case),
            ours=ours,
            floor=floor,
            microseconds=taken,
            floor_microseconds=None if floor is None else bootstrap([s * 1e6 for s in floor.seconds_per_op]),
            events_per_second=case.events / taken.estimate * 1e6,
            ratio=None if floor is None else paired_ratio(floor.seconds_per_op, ours.seconds_per_op),
            cpu_microseconds=bootstrap([seconds * 1e6 for seconds in ours.cpu_s_per_op]),
            cpu_ratio=None if floor is None else paired_ratio(floor.cpu_s_per_op, ours.cpu_s_per_op),
        )

    def _floor_work(self, case: Case) -> str:
        if case.name == "aio" or self._floor is None:
            return f"{TASKS} threads that block in append, of the same store"
        return self._floor.work

    def _contenders(self, case: Case, stack: ExitStack) -> list[Contender]:
        contenders: list[Contender] = []
        if case.name in _READS:
            writer = self._writer(case.name, events=_READS[case.name])
            while writer.base < READ_LENGTH:
                writer.append(self._store)
            border = READ_PAGE if case.name == "page" else 1
            return [StoreReads(self._store, writer.key, whole=case.name == "load", border=border)]
        if case.name == "aio":
            return self._tasks(stack)
        if case.name == "append":
            contenders = [StoreAppends(self._store, self._writer("append", events=1))]
        elif case.name == "group":
            writers = [self._writer(f"group-{number}", events=GROUP_EVENTS) for number in range(GROUP)]
            contenders = [StoreGroups(self._store, writers)]
        else:
            writers = [self._writer(f"writer-{number}", events=1) for number in range(WRITERS)]
            contenders = [Together([StoreAppends(self._store, writer) for writer in writers])]
        if self._floor is not None:
            contenders.append(self._floor_of(case, self._floor, stack))
        return contenders

    def _tasks(self, stack: ExitStack) -> list[Contender]:
        tasks = AsyncTasks(self._store, [self._writer(f"task-{number}", events=1) for number in range(TASKS)])
        stack.callback(tasks.close)
        blocking = [self._writer(f"blocking-{number}", events=1) for number in range(TASKS)]
        return [tasks, Together([StoreAppends(self._store, writer) for writer in blocking])]

    def _floor_of(self, case: Case, floor: RawEngine, stack: ExitStack) -> Contender:
        lanes = [floor.lane() for _ in range(WRITERS if case.name == "writers" else 1)]
        for lane in lanes:
            stack.callback(lane.close)
        if case.name == "append":
            return RawAppends(lanes[0], GROUP, "append")
        if case.name == "group":
            return RawGroups(lanes[0])
        # Thread GROUP belongs to the case `append`, whose lane knows its head: the writers have the others.
        return Together([RawAppends(lane, GROUP + 1 + n, f"writer-{n}") for n, lane in enumerate(lanes)], name="raw")

    def _writer(self, name: str, *, events: int) -> JournalWriter:
        key = thread_key(name)
        writer = JournalWriter(self._store.claim(key, "bench"), Batches(name, events=events, event_bytes=EVENT_BYTES))
        self._writers.append(writer)
        return writer
