"""The histogram: within 1/1024 of the truth, mergeable, and silent where too few samples tell."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from statebook_benchmarks.histogram import (
    Histogram,
    HistogramData,
    bucket_of,
    highest_in,
    percentiles_ms,
)

NANOSECONDS = st.integers(0, 10**15)


@given(NANOSECONDS)
def test_a_bucket_holds_its_value_within_a_thousandth(value: int) -> None:
    high = highest_in(bucket_of(value))
    assert value <= high <= value + value // 1_024 + 1
    assert bucket_of(high) == bucket_of(value)
    assert bucket_of(high + 1) == bucket_of(value) + 1


@given(st.lists(NANOSECONDS, min_size=1, max_size=60), st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_that_of_the_sorted_samples(values: list[int], q: float) -> None:
    ordered = sorted(values)
    place = max(0, -int(-q * len(values) // 1) - 1)
    found = Histogram(values).quantile_ns(q)
    assert ordered[place] <= found <= ordered[place] * (1 + 1 / 1_000) + 1


@given(st.lists(NANOSECONDS, max_size=30), st.lists(NANOSECONDS, max_size=30))
def test_merging_is_counting_together_and_storage_keeps_everything(one: list[int], other: list[int]) -> None:
    merged = Histogram(one)
    merged.merge(Histogram(other))
    assert merged.data() == Histogram(one + other).data()
    stored = msgspec.json.decode(msgspec.json.encode(merged.data()), type=HistogramData)
    assert Histogram.of(stored).data() == merged.data()


def test_percentiles_without_samples_enough_are_not_reported() -> None:
    assert percentiles_ms(Histogram(range(5))) == {}
    assert set(percentiles_ms(Histogram(range(100)))) == {"p50", "p90"}
    assert set(percentiles_ms(Histogram(range(1_000)))) == {"p50", "p90", "p99"}
    assert set(percentiles_ms(Histogram(range(10_000)))) == {"p50", "p90", "p99", "p99.9"}


def test_the_longest_sample_is_exact_and_a_clock_that_goes_back_counts_as_nothing() -> None:
    histogram = Histogram([123_456_789, -5])
    assert histogram.quantile_ns(1.0) == histogram.max_ns == 123_456_789
    assert histogram.quantile_ns(0.0) == 0
    with pytest.raises(ValueError, match="sample"):
        Histogram().quantile_ns(0.5)
