"""Plain statistics: percentiles, ratios of interleaved rounds, bootstrap intervals. Pure; seeds are arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import msgspec

RESAMPLES: Final = 2_000
"""How many resamples an interval is made of."""

CONFIDENCE: Final = 0.95
"""The confidence of every interval that is reported."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its interval.

    Attributes:
        estimate: The estimate.
        low: The lower end.
        high: The upper end.
    """

    estimate: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Tell whether a value lies in the interval."""
        return self.low <= value <= self.high


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of values that are sorted already, interpolated.

    Args:
        ordered: At least one value, ascending.
        q: 0 to 1.

    Returns:
        The quantile.

    Raises:
        ValueError: There is no value, or `q` is outside its range.
    """
    if not ordered or not 0 <= q <= 1:
        raise ValueError("a quantile needs at least one value, and q from 0 to 1")
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = median,
    *,
    seed: int = 1,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """The percentile-bootstrap interval of a statistic.

    Args:
        values: At least one value.
        statistic: What is estimated.
        seed: The seed of the resampling: the same values give the same interval.
        resamples: How many resamples.
        confidence: Between 0 and 1.

    Returns:
        The statistic of the values, with its interval.

    Raises:
        ValueError: There is no value.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    rng = random.Random(seed)
    count = len(values)
    drawn = sorted(statistic(rng.choices(values, k=count)) for _ in range(resamples))
    tail = (1 - confidence) / 2
    return Interval(statistic(values), quantile(drawn, tail), quantile(drawn, 1 - tail))


def paired_ratio(floor_s: Sequence[float], ours_s: Sequence[float], *, seed: int = 1) -> Interval:
    """How the speed of ours stands to that of the floor, from rounds that ran next to each other.

    Rounds are compared in pairs, so that what slows down a whole moment of the machine slows down both.

    Args:
        floor_s: Seconds an operation of the floor, one a round.
        ours_s: Seconds an operation of ours, one a round, in the same order.
        seed: The seed of the resampling.

    Returns:
        The median of the ratios of speeds: 1 is as fast, 2 twice as fast.

    Raises:
        ValueError: The numbers of rounds differ, or there is none.
    """
    return bootstrap([floor / ours for floor, ours in zip(floor_s, ours_s, strict=True)], seed=seed)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line of least squares through points: on logarithms, the exponent of growth.

    Args:
        points: At least two, with different x.

    Returns:
        The slope.

    Raises:
        ValueError: There are too few points, or all have one x.
    """
    count = len(points)
    mean_x = sum(x for x, _ in points) / count if points else 0.0
    mean_y = sum(y for _, y in points) / count if points else 0.0
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if count < 2 or spread == 0:
        raise ValueError("a slope needs at least two points with different x")
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
