"""One trial: prepare, warm up, load, read back, summarise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from statistics import median
from typing import Final

import msgspec

from statebook_benchmarks.counters import Counters, Usage
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.load import GRACE, Load, Outcome, Plan, Sample, nothing, open_plan, run_load
from statebook_benchmarks.results import Calibration, Second, Trial
from statebook_benchmarks.workloads import Site, make_workload

LATENESS_MAX_NS: Final = 2_000_000
"""How late the generator may be, at the 99th percentile, before a trial counts as limited by it."""
CALM_RATE: Final = 500.0
"""The rate at which the generator's own lateness is told."""
GENERATOR_PART: Final = 0.5
"""Up to what part of its own highest rate the generator is trusted."""
READINGS: Final = 60
"""How many readings of usage a trial keeps, at most."""


class Usages:
    """Takes readings under way, so that drift can be told."""

    def __init__(self, counters: Counters, seconds: float) -> None:
        self._counters = counters
        self._every = max(0.2, seconds / READINGS)
        self._began = time.monotonic()
        self.first = counters.read()
        self.readings: list[tuple[float, Usage]] = [(0.0, self.first)]

    def look(self) -> None:
        """Take a reading where it is time for one."""
        now = time.monotonic() - self._began
        if now - self.readings[-1][0] >= self._every:
            self.readings.append((round(now, 2), self._counters.read().since(self.first)))


class TrialOrder(msgspec.Struct, frozen=True):
    """How one trial is run.

    Attributes:
        site: The workload's site.
        rate: Operations a second, or None for a closed loop.
        calibration: What the generator can do; None for a closed loop.
        counters: What reads usage.
        progress: Called with the part that is over.
        lateness_max_ns: How late the generator may be, at the 99th percentile.
    """

    site: Site
    rate: float | None
    calibration: Calibration | None
    counters: Counters
    progress: Callable[[float], None]
    lateness_max_ns: float = LATENESS_MAX_NS


def run_trial(order: TrialOrder) -> Trial:
    """Run one trial.

    Args:
        order: How.

    Returns:
        The trial with its histograms, and with everything that reading back found.

    Raises:
        StatebookError: The workload could not be prepared or read back.
    """
    parameters = order.site.parameters
    length = parameters.seconds + parameters.warm_up_s
    if order.rate is None:
        plan = Plan((), length, parameters.lanes, parameters.threads)
    else:
        plan = open_plan(order.rate, length, parameters.lanes, parameters.threads, seed=parameters.seed)
    with closing(make_workload(order.site)) as workload:
        workload.prepare()
        usages = Usages(order.counters, length)

        def watch(part: float) -> None:
            usages.look()
            order.progress(part)

        load = run_load(plan, workload, progress=watch)
        usage = order.counters.read().since(usages.first)
        workload.settle_down()
        summary = summarise(load, int(parameters.warm_up_s * 1e9), order.rate)
        return msgspec.structs.replace(
            summary,
            events_per_op=workload.events_per_op,
            extra=tuple((name, histogram.data()) for name, histogram in workload.extra()),
            usage=usage,
            readings=tuple(usages.readings),
            findings=tuple(workload.check()),
            limited_by_generator=limited(summary, order.rate, order.calibration, order.lateness_max_ns),
        )


def summarise(load: Load, warm_up_ns: int, rate: float | None) -> Trial:
    """Turn samples into a trial; what was to start in the warm-up is left out. Pure.

    Operations that were skipped count in the latency with the time that they had waited when the trial ended, so that a
    store that stalls cannot look fast.

    Args:
        load: What happened.
        warm_up_ns: The length of the warm-up.
        rate: The intended rate, or None in a closed loop.

    Returns:
        The trial, without what only its workload knows.
    """
    counted = [sample for sample in load.samples if sample.intended >= warm_up_ns]
    end = max((sample.ended for sample in counted), default=warm_up_ns)
    skipped = [start for start in load.skipped if start >= warm_up_ns]
    latency = Histogram(sample.ended - sample.intended for sample in counted)
    for start in skipped:
        latency.record(end - start)
    done = sum(sample.outcome is Outcome.DONE for sample in counted)
    seconds = max((end - warm_up_ns) / 1e9, 1e-9)
    errors = Counter(sample.error for sample in counted if sample.outcome is Outcome.ERROR and sample.error)
    return Trial(
        rate=rate,
        closed=rate is None,
        seconds=seconds,
        operations=len(counted),
        done=done,
        conflicts=sum(sample.outcome is Outcome.CONFLICT for sample in counted),
        errors=tuple(sorted(errors.items())),
        skipped=len(skipped),
        events_per_op=0,
        throughput=done / seconds,
        latency=latency.data(),
        service=Histogram(sample.ended - sample.started for sample in counted).data(),
        lateness=Histogram(sample.started - sample.ready for sample in counted).data(),
        extra=(),
        series=series(counted, warm_up_ns),
        usage=Usage(0.0, None, None, None, None, None, None),
        readings=(),
        findings=(),
        limited_by_generator=False,
    )


def series(samples: Iterable[Sample], warm_up_ns: int) -> tuple[Second, ...]:
    """Sort samples into the seconds in which they ended. Pure."""
    seconds: dict[int, list[Sample]] = {}
    for sample in samples:
        seconds.setdefault(max(0, sample.ended - warm_up_ns) // 1_000_000_000, []).append(sample)
    rows = []
    for second in range(max(seconds, default=-1) + 1):
        there = seconds.get(second, [])
        times = [(sample.ended - sample.intended) / 1e6 for sample in there]
        rows.append(
            Second(
                done=sum(sample.outcome is Outcome.DONE for sample in there),
                errors=sum(sample.outcome is Outcome.ERROR for sample in there),
                conflicts=sum(sample.outcome is Outcome.CONFLICT for sample in there),
                p50_ms=median(times) if times else None,
                max_ms=max(times, default=None),
            )
        )
    return tuple(rows)


def limited(
    trial: Trial, rate: float | None, calibration: Calibration | None, lateness_max_ns: float = LATENESS_MAX_NS
) -> bool:
    """Tell whether the generator set the limit of a trial. Pure."""
    if rate is None or calibration is None:
        return False
    lateness = Histogram.of(trial.lateness)
    late = lateness.count > 0 and lateness.quantile_ns(0.99) > lateness_max_ns
    return late or rate > calibration.max_rate * GENERATOR_PART


def calibrate(lanes: int, *, seconds: float = 0.3, rate_max: float = 400_000.0) -> Calibration:
    """Find out what the generator can do against a null backend: doubling until it falls behind.

    Args:
        lanes: Workers.
        seconds: The length of a trial.
        rate_max: Higher rates are not tried.

    Returns:
        The highest rate that it kept up with, and how late it is at a calm one.
    """
    calm = run_load(open_plan(CALM_RATE, seconds, lanes, lanes, seed=1), nothing)
    lateness = Histogram(sample.started - sample.ready for sample in calm.samples)
    best, rate = 0.0, CALM_RATE
    while rate <= rate_max:
        load = run_load(open_plan(rate, seconds, lanes, lanes, seed=1), nothing)
        if load.skipped or load.seconds > seconds * (1 + GRACE / 2):
            break
        best, rate = rate, rate * 2
    return Calibration(best, lateness.quantile_ns(0.99) / 1e6 if lateness.count else 0.0)
