"""The search for a capacity, against stores whose capacity is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from sample_trial import trial_of

from statebook_benchmarks.capacity import Objective, Probed, find_capacity


class Store:
    """Meets the objective up to a rate; may fail now and then, or be limited by the generator."""

    def __init__(self, limit: float, *, fails: frozenset[int] = frozenset(), generator: float = float("inf")) -> None:
        self.asked: list[float] = []
        self._limit = limit
        self._fails = fails
        self._generator = generator

    def __call__(self, rate: float) -> Probed:
        self.asked.append(rate)
        met = rate <= self._limit and len(self.asked) not in self._fails
        return Probed(met, rate > self._generator)


@settings(max_examples=200)
@given(st.floats(2.0, 500_000.0), st.floats(1.0, 1_000.0))
def test_the_interval_holds_the_truth_within_five_percent_and_is_confirmed(limit: float, start: float) -> None:
    if start > 60 * limit:
        start = limit
    store = Store(limit)
    found = find_capacity(store, start=start)
    assert found.low <= limit
    assert found.high is not None
    assert limit < found.high <= found.low * 1.05 + 1e-9
    assert found.confirmed == 3
    assert store.asked[-3:] == [found.low] * 3
    assert found.recommended == pytest.approx(0.8 * found.low)
    assert found.reason == "found and confirmed"


def test_the_search_doubles_then_bisects() -> None:
    store = Store(1_000.0)
    find_capacity(store, start=100.0)
    assert store.asked[:9] == [100.0, 200.0, 400.0, 800.0, *[1_600.0] * 2, *[1_200.0] * 2, 1_000.0]


@pytest.mark.parametrize("trial", range(1, 12))
def test_one_hiccup_decides_nothing(trial: int) -> None:
    calm, shaky = Store(1_000.0), Store(1_000.0, fails=frozenset({trial}))
    assert find_capacity(shaky, start=100.0) == find_capacity(calm, start=100.0)


def test_a_generator_that_is_late_once_is_no_limit() -> None:
    class LateOnce(Store):
        def __call__(self, rate: float) -> Probed:
            answer = super().__call__(rate)
            return Probed(answer.met, len(self.asked) == 3)

    found = find_capacity(LateOnce(1_000.0), start=100.0)
    assert found.reason == "found and confirmed"
    assert found.low > 950


def test_a_rate_that_does_not_hold_again_is_given_up() -> None:
    calm = Store(1_000.0)
    expected = find_capacity(calm, start=100.0).low
    last = len(calm.asked)
    shaky = Store(1_000.0, fails=frozenset({last, last + 1}))
    found = find_capacity(shaky, start=100.0)
    assert found.low < expected
    assert found.confirmed == 3


def test_a_store_that_holds_nothing_has_no_capacity() -> None:
    store = Store(0.0)
    found = find_capacity(store, start=64.0)
    assert (found.low, found.confirmed) == (0.0, 0)
    assert "no rate" in found.reason
    assert len(store.asked) < 20


def test_where_the_generator_is_the_limit_the_result_is_a_lower_bound() -> None:
    found = find_capacity(Store(1e9, generator=500.0), start=100.0)
    assert found.low == 800.0
    assert found.high is None
    assert "lower bound" in found.reason


def test_the_search_is_bounded() -> None:
    store = Store(1e12)
    assert find_capacity(store, start=1.0, rate_max=float("inf"), trials_max=12).confirmed == 0
    assert len(store.asked) == 12
    with pytest.raises(ValueError, match="positive"):
        find_capacity(store, start=0.0)


@pytest.mark.parametrize(
    ("text", "percentile", "limit_ns"),
    [("p99=20ms", "p99", 2e7), ("p50=500us", "p50", 5e5), ("p99.9=1.5s", "p99.9", 1.5e9)],
)
def test_an_objective_is_read(text: str, percentile: str, limit_ns: float) -> None:
    objective = Objective.parse(text)
    assert (objective.percentile, objective.limit_ns, objective.text) == (percentile, limit_ns, text)


@pytest.mark.parametrize("text", ["", "p99", "p98=20ms", "p99=20", "p99=-1ms", "p99=20ms "])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no objective"):
        Objective.parse(text)


def test_errors_skipped_operations_and_slowness_each_miss_the_objective() -> None:
    objective = Objective.parse("p50=10ms")
    assert objective.missed(trial_of([5] * 100)) == ()
    assert objective.missed(trial_of([15] * 100)) == ("p50 was 15.00 ms",)
    assert objective.missed(trial_of([5] * 100, errors=2)) == ("2 errors",)
    assert objective.missed(trial_of([5] * 100, skipped=3)) == ("3 operations could not start in time",)
    assert objective.missed(trial_of([])) == ("no operation was done",)
