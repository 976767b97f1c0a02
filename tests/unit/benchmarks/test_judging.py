"""Comparison, advice, scaling law, drift and report on runs whose figures are known."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from sample_trial import USAGE, point_of, run_of, trial_of

from statebook_benchmarks.advise import advise
from statebook_benchmarks.compare import Verdict, compare_runs, judge, mean_ratio
from statebook_benchmarks.drift import drift
from statebook_benchmarks.plots import Axis, Series, plot
from statebook_benchmarks.report import Prices, render
from statebook_benchmarks.results import Capacity, Point, ResultsError, RunResult, read_run
from statebook_benchmarks.stats import Interval
from statebook_benchmarks.usl import Usl, fit
from statebook_benchmarks.validity import Finding

LOSS = Finding("loss", "t", 1, "gone")


def noisy(rate: float, noise: float, seed: int, seconds: int = 31) -> RunResult:
    rng = random.Random(seed)
    rows = [
        (int(rng.gauss(rate, noise * rate)), 1_000 / max(1.0, rng.gauss(rate, noise * rate))) for _ in range(seconds)
    ]
    return run_of(point_of(trial_of([1.0] * 100, series=rows)))


@pytest.mark.parametrize(
    ("low", "estimate", "high", "verdict"),
    [
        (1.10, 1.20, 1.30, Verdict.BETTER),
        (0.70, 0.80, 0.90, Verdict.WORSE),
        (0.97, 1.00, 1.03, Verdict.SAME),
        (1.01, 1.02, 1.04, Verdict.SAME),
        (0.90, 1.00, 1.10, Verdict.UNKNOWN),
        (1.01, 1.04, 1.20, Verdict.UNKNOWN),
        (0.80, 1.00, 1.01, Verdict.UNKNOWN),
    ],
)
def test_a_verdict_follows_from_the_interval(low: float, estimate: float, high: float, verdict: Verdict) -> None:
    assert judge(Interval(estimate, low, high)) is verdict


def test_runs_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    def verdicts(one: RunResult, other: RunResult) -> list[Verdict]:
        return [row.verdict for row in compare_runs(one, other)]

    assert verdicts(noisy(1_000, 0.05, 1), noisy(1_300, 0.05, 2)) == [Verdict.BETTER] * 2
    assert verdicts(noisy(1_300, 0.05, 2), noisy(1_000, 0.05, 1)) == [Verdict.WORSE] * 2
    assert verdicts(noisy(1_000, 0.01, 1), noisy(1_000, 0.01, 2)) == [Verdict.SAME] * 2
    assert verdicts(noisy(1_000, 0.40, 5), noisy(1_000, 0.40, 6)) == [Verdict.UNKNOWN] * 2


def test_the_interval_of_a_ratio_of_means_covers_the_truth() -> None:
    rng = random.Random(1)
    covered = 0
    for seed in range(60):
        before = [rng.gauss(100, 20) for _ in range(30)]
        after = [rng.gauss(150, 20) for _ in range(30)]
        covered += mean_ratio(before, after, seed=seed).holds(1.5)
    assert covered >= 50


def test_what_does_not_compare_is_unknown_and_says_why() -> None:
    good = noisy(1_000, 0.01, 1)
    other_durability = msgspec.structs.replace(
        good, subject=msgspec.structs.replace(good.subject, durability="process")
    )
    invalid = run_of(point_of(trial_of([1.0], series=[(9, 1.0)] * 9, findings=(LOSS,))))
    short = noisy(1_000, 0.01, 1, seconds=3)
    for other, why in ((other_durability, "durability"), (invalid, "INVALID"), (short, "seconds")):
        rows = compare_runs(good, other)
        assert {row.verdict for row in rows} == {Verdict.UNKNOWN}
        assert all(why in row.why for row in rows)


def test_capacities_within_the_precision_of_the_search_are_the_same() -> None:
    def run_at(low: float) -> RunResult:
        capacity = Capacity(low, low * 1.05, low * 0.8, 3, "found and confirmed")
        return run_of(point_of(trial_of([1.0]), capacity=capacity), slo="p99=20ms")

    verdicts = [compare_runs(run_at(1_000), run_at(other))[0].verdict for other in (1_000, 1_300, 700)]
    assert verdicts == [Verdict.SAME, Verdict.BETTER, Verdict.WORSE]


@pytest.mark.parametrize(("contention", "coherence"), [(0.0, 0.0), (0.1, 0.0), (0.05, 0.002), (0.3, 0.01)])
def test_the_scaling_law_is_found_again(contention: float, coherence: float) -> None:
    law = Usl(1_000.0, contention, coherence)
    found = fit([(n, law.at(n)) for n in (1, 2, 4, 8, 16, 32)])
    assert found is not None
    for lanes in (1, 3, 12, 32):
        assert found.at(lanes) == pytest.approx(law.at(lanes), rel=0.05)


def test_two_points_are_no_law() -> None:
    assert fit([(1, 10.0), (2, 19.0)]) is None
    assert fit([(1, 10.0), (2, 0.0), (3, 5.0)]) is None
    assert Usl(10.0, 0.0, 0.0).peak is None
    assert Usl(10.0, 0.0, 0.01).peak == pytest.approx(10)


def lane_sweep() -> RunResult:
    figures = ((1, 100.0), (2, 190.0), (4, 330.0), (8, 340.0), (16, 335.0))
    points = [point_of(trial_of([5.0] * 2_000, throughput=rate), lanes=lanes) for lanes, rate in figures]
    return run_of(*points)


def test_advice_takes_the_fewest_lanes_that_come_near_the_best() -> None:
    advice = {item.what: item.value for item in advise(lane_sweep())}
    assert advice["lanes"] == "4"
    assert advice["pool"] == "4 connections"
    assert advice["queue"] == "170 batches"


def test_advice_on_batches_and_rates_follows_from_their_sweeps() -> None:
    batches = [
        msgspec.structs.replace(
            point, trials=(msgspec.structs.replace(point.trials[0], events_per_op=point.parameters.batch_events),)
        )
        for point in (point_of(trial_of([1.0], throughput=1_000 / (n + 9)), batch_events=n) for n in (1, 8, 64, 512))
    ]
    assert {a.what: a.value for a in advise(run_of(*batches))}["batch"] == "512 events"
    capacity = Capacity(1_000, 1_050, 800, 3, "found and confirmed")
    run = run_of(point_of(trial_of([1.0]), capacity=capacity), slo="p99=20ms")
    assert {a.what: a.value for a in advise(run)}["rate"] == "800 ops/s"
    with pytest.raises(ValueError, match="INVALID"):
        advise(run_of(point_of(trial_of([1.0], findings=(LOSS,)))))


def test_drift_is_the_last_quarter_against_the_first() -> None:
    rows = [(100, 1.0 + second / 20) for second in range(41)]
    readings = tuple(
        (float(n), msgspec.structs.replace(USAGE, memory_bytes=(50 << 20) + n * (1 << 20))) for n in range(41)
    )
    found = {d.what: d.change for d in drift(msgspec.structs.replace(trial_of([1.0], series=rows), readings=readings))}
    assert found["p50 latency"] > 0.5
    assert found["throughput"] == 0
    assert found["memory"] > 0.4
    assert found["open files"] == 0
    assert drift(trial_of([1.0], series=rows[:5])) == ()


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_fetches_nothing_and_shows_every_plot() -> None:
    growth = run_of(*(point_of(trial_of([1.0] * 50), journal_len=n) for n in (100, 1_000, 10_000)))
    text = render((lane_sweep(), growth, noisy(1_000, 0.05, 1)), Prices(hour=1.0, million=5.0))
    page = Page()
    page.feed(text)
    assert page.open == []
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe"}
    assert not [attrs for _, attrs in page.tags if {"src", "href", "onload"} & set(attrs)]
    assert "prefers-color-scheme: dark" in text
    for title in ("Lanes", "Growth with the journal", "Percentile spectrum", "Second by second", "Cost of a million"):
        assert title in text
    assert "Slope on logarithms +0.000" in text


def test_texts_of_a_server_are_escaped() -> None:
    run = run_of(point_of(trial_of([1.0] * 20)))
    run = msgspec.structs.replace(run, subject=msgspec.structs.replace(run.subject, server=(("<script>", "alert(1)"),)))
    assert "<script>" not in render((run,), Prices())


def test_a_plot_without_points_is_nothing_and_logarithms_leave_out_what_they_cannot_show() -> None:
    assert plot([], Axis("x"), Axis("y"), "empty") == ""
    assert plot([Series("s", ((0.0, 1.0),))], Axis("x", log=True), Axis("y"), "none") == ""
    assert "<circle" in plot([Series("s", ((0.0, 1.0), (1.0, 5.0)))], Axis("x", log=True), Axis("y"), "one")


def test_results_are_read_back_and_others_refused(tmp_path: Path) -> None:
    run = lane_sweep()
    file = tmp_path / "deep" / "run.json"
    run.write(file)
    assert read_run(file) == run
    for content in (b"", b"{}", b'{"format": 2, "kind": "run"}', b'{"format": 1, "kind": "run"}'):
        file.write_bytes(content)
        with pytest.raises(ResultsError):
            read_run(file)


def test_a_point_shows_its_best_trial_among_those_that_met_the_objective() -> None:
    slow = msgspec.structs.replace(trial_of([1.0], throughput=100.0), slo_met=True)
    fast = msgspec.structs.replace(trial_of([1.0], throughput=500.0), slo_met=False)
    point = point_of(slow)
    assert Point(point.settings, point.parameters, (slow, fast)).best == slow
    assert Point(point.settings, point.parameters, (fast,)).best == fast
