"""Quantiles, intervals, ratios and slopes on values whose answers are known."""

from __future__ import annotations

import math
import random

import pytest

from statebook_benchmarks.stats import bootstrap, paired_ratio, quantile, slope


@pytest.mark.parametrize(("q", "wanted"), [(0, 1.0), (0.5, 3.0), (0.25, 2.0), (0.1, 1.4), (1, 5.0)])
def test_a_quantile_lies_between_its_neighbours(q: float, wanted: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], q) == pytest.approx(wanted)


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1)])
def test_a_quantile_of_nothing_or_outside_its_range_is_refused(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile(values, q)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for seed in range(100):
        values = [rng.gauss(10.0, 2.0) for _ in range(25)]
        covered += bootstrap(values, seed=seed, resamples=300).holds(10.0)
    assert 85 <= covered <= 100


def test_the_same_values_give_the_same_interval() -> None:
    values = [float(n % 7) for n in range(30)]
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)
    assert bootstrap(values, seed=3).low <= bootstrap(values, seed=3).estimate <= bootstrap(values, seed=3).high


def test_a_ratio_is_of_speeds_and_cancels_what_slows_a_round_as_a_whole() -> None:
    noise = [1.0, 3.0, 0.5, 10.0, 2.0, 1.5, 4.0]
    ratio = paired_ratio([1.0 * n for n in noise], [2.0 * n for n in noise])
    assert ratio.estimate == ratio.low == ratio.high == pytest.approx(0.5)


def test_rounds_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one"):
        paired_ratio([], [])


def test_the_slope_on_logarithms_is_the_exponent_of_growth() -> None:
    points = [(math.log(x), math.log(3 * x**1.5)) for x in (10, 100, 1_000, 10_000)]
    assert slope(points) == pytest.approx(1.5)
    assert slope([(x, 4.0) for x in (1.0, 2.0, 3.0)]) == 0


def test_a_slope_needs_two_different_places() -> None:
    for points in ([], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)]):
        with pytest.raises(ValueError, match="slope"):
            slope(points)
