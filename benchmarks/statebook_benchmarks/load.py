"""The load: intended start times fixed beforehand, lanes that keep the order of a thread, lateness told apart."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final, Protocol

import msgspec

from statebook import Conflict, StatebookError

GRACE: Final = 0.5
"""How long behind the end of a trial its last operations may still start, as a part of its length."""


class Outcome(Enum):
    """What became of one operation."""

    DONE = "done"
    CONFLICT = "conflict"
    ERROR = "error"


class Operation(Protocol):
    """What is done again and again. May raise `StatebookError`, which is counted by its class."""

    def __call__(self, thread: int) -> Outcome:
        """Do it once for one thread."""
        ...


class Plan(msgspec.Struct, frozen=True):
    """When what starts. All of it is known before the trial.

    Attributes:
        starts_ns: The intended start of each operation behind that of the trial, ascending; empty in a closed loop.
        seconds: The length of the trial.
        lanes: Workers; each does its operations one after the other.
        threads: Threads that operations go round; a thread always belongs to one lane.
    """

    starts_ns: tuple[int, ...]
    seconds: float
    lanes: int
    threads: int


def open_plan(rate: float, seconds: float, lanes: int, threads: int, *, seed: int, uniform: bool = False) -> Plan:
    """Plan an open loop: operations come whether earlier ones are done or not.

    Args:
        rate: Operations a second.
        seconds: The length.
        lanes: Workers.
        threads: Threads, at least as many.
        seed: Draws the times between starts.
        uniform: Equal times between starts, instead of exponential ones.

    Returns:
        The plan.

    Raises:
        ValueError: A number is not positive, or there are fewer threads than lanes.
    """
    if min(rate, seconds, lanes) <= 0 or threads < lanes:
        raise ValueError("rate, seconds and lanes must be positive, and threads at least as many as lanes")
    rng = random.Random(seed)
    starts: list[int] = []
    at = 0.0
    while True:
        at += 1 / rate if uniform else rng.expovariate(rate)
        if at >= seconds:
            return Plan(tuple(starts), seconds, lanes, threads)
        starts.append(int(at * 1e9))


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One operation of a trial. Times in nanoseconds behind the start of the trial.

    Attributes:
        intended: When it should have started; in a closed loop, when it did.
        ready: When its lane was free and its time had come: what lies between that and `started` is the generator's.
        started: When it started.
        ended: When it was over.
        outcome: What became of it.
        error: The class of its error, or None.
    """

    intended: int
    ready: int
    started: int
    ended: int
    outcome: Outcome
    error: str | None


class Load(msgspec.Struct, frozen=True):
    """What happened.

    Attributes:
        samples: The operations that were started, by lane.
        skipped: Intended starts of those that were not, since the trial was over.
        seconds: How long it took.
    """

    samples: tuple[Sample, ...]
    skipped: tuple[int, ...]
    seconds: float


def run_load(plan: Plan, operation: Operation, *, progress: Callable[[float], None] = lambda _: None) -> Load:
    """Run a plan.

    Latency counts from the intended start: what waits because an earlier operation is slow has waited (no coordinated
    omission). Operations that could not start by the end and a grace are counted as skipped, never dropped.

    Args:
        plan: The plan.
        operation: What is done.
        progress: Called with the part that is over, 0 to 1, a few times a second.

    Returns:
        What happened.

    Raises:
        BaseException: What an operation raised that is no `StatebookError`; the trial is void.
    """
    workers = [_Worker(plan, operation, lane) for lane in range(plan.lanes)]
    barrier = threading.Barrier(plan.lanes + 1)
    threads = [threading.Thread(target=worker.run, args=(barrier,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
            progress(min(1.0, (time.perf_counter() - began) / plan.seconds))
    seconds = time.perf_counter() - began
    for worker in workers:
        if worker.broken is not None:
            raise worker.broken
    return Load(
        samples=tuple(sample for worker in workers for sample in worker.samples()),
        skipped=tuple(intended for worker in workers for intended in worker.skipped),
        seconds=seconds,
    )


class _Worker:
    """One lane: its operations one after the other."""

    def __init__(self, plan: Plan, operation: Operation, lane: int) -> None:
        # Four numbers and a reference an operation: notes that grew by much would pass for a leak of the store.
        self._times = array("q")
        self._ends: list[tuple[Outcome, str | None]] = []
        self._kinds: dict[tuple[Outcome, str | None], tuple[Outcome, str | None]] = {}
        self.skipped: list[int] = []
        self.broken: BaseException | None = None
        self._plan = plan
        self._operation = operation
        self._lane = lane
        mine = range(lane, plan.threads, plan.lanes)
        self._threads: Sequence[int] = mine
        # Operation i goes to thread i modulo the threads, and a thread to the lane of its number.
        self._starts = [
            (start, number % plan.threads)
            for number, start in enumerate(plan.starts_ns)
            if number % plan.threads % plan.lanes == lane
        ]

    def samples(self) -> Iterator[Sample]:
        """What was noted, once the load is over."""
        times = iter(self._times)
        for (intended, ready, started, ended), (outcome, error) in zip(
            zip(times, times, times, times, strict=True), self._ends, strict=True
        ):
            yield Sample(intended, ready, started, ended, outcome, error)

    def run(self, barrier: threading.Barrier) -> None:
        barrier.wait()
        origin = time.perf_counter_ns()
        try:
            if self._plan.starts_ns:
                self._open(origin)
            else:
                self._closed(origin)
        except BaseException as error:  # noqa: BLE001 - given to the caller of run_load
            self.broken = error

    def _open(self, origin: int) -> None:
        clock, last = time.perf_counter_ns, int(self._plan.seconds * (1 + GRACE) * 1e9)
        free = 0
        for place, (intended, thread) in enumerate(self._starts):
            wait = intended - (clock() - origin)
            if wait > 0:
                time.sleep(wait / 1e9)
            now = clock() - origin
            if now > last:
                self.skipped.extend(start for start, _ in self._starts[place:])
                return
            free = self._do(origin, thread, intended, max(intended, free))

    def _closed(self, origin: int) -> None:
        clock, last, number = time.perf_counter_ns, int(self._plan.seconds * 1e9), 0
        while (now := clock() - origin) < last:
            self._do(origin, self._threads[number % len(self._threads)], now, now)
            number += 1

    def _do(self, origin: int, thread: int, intended: int, ready: int) -> int:
        clock = time.perf_counter_ns
        error = None
        started = clock() - origin
        try:
            outcome = self._operation(thread)
        except Conflict as raised:
            outcome, error = Outcome.CONFLICT, type(raised).__name__
        except StatebookError as raised:
            outcome, error = Outcome.ERROR, type(raised).__name__
        ended = clock() - origin
        self._times.extend((intended, ready, started, ended))
        end = (outcome, error)
        self._ends.append(self._kinds.setdefault(end, end))
        return ended


def nothing(thread: int) -> Outcome:  # noqa: ARG001 - an operation like any other
    """The null backend: done at once."""
    return Outcome.DONE
