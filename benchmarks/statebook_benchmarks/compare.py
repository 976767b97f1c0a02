"""Two runs side by side: better, worse, same or unknown, each with its interval. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec

from statebook_benchmarks.capacity import PRECISION
from statebook_benchmarks.results import Capacity, Parameters, Point, RunResult, Trial
from statebook_benchmarks.stats import Interval, bootstrap, quantile

MARGIN: Final = 0.05
"""Differences below this part are no difference."""
SECONDS_LEAST: Final = 5
"""From so many seconds on, a series tells something."""
RESAMPLES: Final = 1_000


class Verdict(Enum):
    """How the second run stands to the first."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNKNOWN = "unknown"


class Comparison(msgspec.Struct, frozen=True):
    """One measure of one point, compared.

    Attributes:
        point: The point.
        measure: `capacity`, `throughput` or `p50 latency`.
        before: The value of the first run.
        after: The value of the second.
        ratio: How many times better the second is, with its interval; above 1 is better.
        verdict: What follows.
        why: What the verdict rests on, or why there is none.
    """

    point: str
    measure: str
    before: float | None
    after: float | None
    ratio: Interval | None
    verdict: Verdict
    why: str


def judge(ratio: Interval, margin: float = MARGIN) -> Verdict:
    """Turn the interval of a ratio into a verdict.

    Args:
        ratio: How many times better; above 1 is better.
        margin: Differences below this part are no difference.

    Returns:
        `SAME` where the whole interval lies inside the margin; `BETTER` or `WORSE` where it leaves out 1 and its
        estimate lies outside the margin; else `UNKNOWN`: the runs are too short or too noisy to tell.
    """
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return Verdict.SAME
    if ratio.low > 1 and ratio.estimate > 1 + margin:
        return Verdict.BETTER
    if ratio.high < 1 and ratio.estimate < 1 - margin:
        return Verdict.WORSE
    return Verdict.UNKNOWN


def compare_runs(before: RunResult, after: RunResult) -> tuple[Comparison, ...]:
    """Compare the points that both runs have.

    Args:
        before: The first run.
        after: The second.

    Returns:
        The comparisons. All are `UNKNOWN` where the runs do not compare: another workload or another durability, or
        a run that is INVALID.
    """
    reason = incomparable(before, after)
    pairs = {point.settings: point for point in before.points}
    return tuple(
        comparison
        for point in after.points
        if point.settings in pairs
        for comparison in _measures(pairs[point.settings], point, reason)
    )


def incomparable(before: RunResult, after: RunResult) -> str | None:
    """Why two runs do not compare, or None where they do."""
    if not before.valid or not after.valid:
        return "a run is INVALID"
    ours, theirs = before.subject, after.subject
    if (ours.durability, ours.durability_setting) != (theirs.durability, theirs.durability_setting):
        return f"durability differs: {ours.durability_setting} and {theirs.durability_setting}"
    if before.points and after.points:
        mine, other = before.points[0].parameters, after.points[0].parameters
        if mine.workload != other.workload:
            return f"workloads differ: {mine.workload} and {other.workload}"
    if before.slo != after.slo:
        return f"objectives differ: {before.slo} and {after.slo}"
    return None


def cautions(before: RunResult, after: RunResult) -> tuple[str, ...]:
    """What else differs, and may explain a difference."""
    found = []
    for name in ("system", "machine", "processor", "cores", "python"):
        one, other = getattr(before.environment, name), getattr(after.environment, name)
        if one != other:
            found.append(f"{name} differs: {one} and {other}")
    if not (before.environment.isolated and after.environment.isolated):
        found.append("other work ran on the machine")
    return tuple(found)


def _measures(before: Point, after: Point, reason: str | None) -> Iterator[Comparison]:
    if _load_of(before) != _load_of(after) and reason is None:
        reason = "parameters differ"
    if before.capacity is not None and after.capacity is not None:
        yield _capacities(after.label, before.capacity, after.capacity, reason)
        return
    one, other = before.best, after.best
    if one.closed != other.closed and reason is None:
        reason = "one is a closed loop and the other is not"
    yield _series(after.label, "throughput", _throughput(one), _throughput(other), reason, higher_is_better=True)
    yield _series(after.label, "p50 latency", _medians(one), _medians(other), reason, higher_is_better=False)


def _load_of(point: Point) -> Parameters:
    """The parameters without those that change no load: how long, and by which seed."""
    return msgspec.structs.replace(point.parameters, seconds=0.0, warm_up_s=0.0, seed=0)


def _capacities(point: str, before: Capacity, after: Capacity, reason: str | None) -> Comparison:
    if before.low <= 0 or after.low <= 0:
        reason = reason or "a capacity was not found"
    if reason is not None:
        return Comparison(point, "capacity", before.low, after.low, None, Verdict.UNKNOWN, reason)
    high = [capacity.high or capacity.low * (1 + PRECISION) for capacity in (before, after)]
    ratio = Interval(after.low / before.low, after.low / high[0], high[1] / before.low)
    # Both are known to the precision of the search only: within two of its steps nothing can be told.
    verdict = judge(ratio, 2 * PRECISION + PRECISION**2)
    return Comparison(point, "capacity", before.low, after.low, ratio, verdict, "intervals of the searches")


def _throughput(trial: Trial) -> tuple[float, ...]:
    return tuple(float(second.done) for second in trial.series[:-1])


def _medians(trial: Trial) -> tuple[float, ...]:
    return tuple(second.p50_ms for second in trial.series[:-1] if second.p50_ms is not None)


def _series(
    point: str,
    measure: str,
    before: Sequence[float],
    after: Sequence[float],
    reason: str | None,
    *,
    higher_is_better: bool,
) -> Comparison:
    if min(len(before), len(after)) < SECONDS_LEAST:
        reason = reason or f"fewer than {SECONDS_LEAST} whole seconds were measured"
    means = [sum(values) / len(values) if values else None for values in (before, after)]
    if reason is not None or not all(means):
        return Comparison(point, measure, means[0], means[1], None, Verdict.UNKNOWN, reason or "nothing was done")
    ratio = mean_ratio(before, after)
    if not higher_is_better:
        ratio = Interval(1 / ratio.estimate, 1 / ratio.high, 1 / ratio.low)
    why = f"{len(before)} and {len(after)} seconds"
    return Comparison(point, measure, means[0], means[1], ratio, judge(ratio), why)


def mean_ratio(before: Sequence[float], after: Sequence[float], *, seed: int = 1) -> Interval:
    """The ratio of two means with its bootstrap interval; the samples are independent of each other.

    Args:
        before: The values below the line, positive.
        after: The values above it.
        seed: The seed of the resampling.

    Returns:
        The ratio.
    """
    below = _resampled(before, seed)
    above = _resampled(after, seed + 1)
    ratios = sorted(a / b for a, b in zip(above, below, strict=True) if b > 0)
    return Interval(_mean(after) / _mean(before), quantile(ratios, 0.025), quantile(ratios, 0.975))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _resampled(values: Sequence[float], seed: int) -> list[float]:
    drawn: list[float] = []

    def keep(sample: Sequence[float]) -> float:
        drawn.append(_mean(sample))
        return drawn[-1]

    bootstrap(values, keep, seed=seed, resamples=RESAMPLES)
    return drawn
