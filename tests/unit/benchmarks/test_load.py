"""The load: starts are fixed beforehand, waiting counts, lanes keep the order of a thread, nothing is dropped."""

from __future__ import annotations

import threading

import pytest

from statebook import OutcomeUnknown, VersionConflict
from statebook_benchmarks.load import Load, Outcome, Plan, Sample, nothing, open_plan, run_load
from statebook_benchmarks.trial import series, summarise

MS = 1_000_000


def sample(intended: float, started: float, ended: float, outcome: Outcome = Outcome.DONE) -> Sample:
    error = None if outcome is Outcome.DONE else "OutcomeUnknown"
    return Sample(int(intended * MS), int(intended * MS), int(started * MS), int(ended * MS), outcome, error)


def test_a_plan_is_the_same_for_the_same_seed_and_has_the_rate_that_was_asked_for() -> None:
    plan = open_plan(1_000.0, 20.0, 4, 16, seed=3)
    assert plan == open_plan(1_000.0, 20.0, 4, 16, seed=3)
    assert plan.starts_ns != open_plan(1_000.0, 20.0, 4, 16, seed=4).starts_ns
    assert list(plan.starts_ns) == sorted(plan.starts_ns)
    assert len(plan.starts_ns) == pytest.approx(20_000, rel=0.03)
    uniform = open_plan(100.0, 1.0, 1, 1, seed=1, uniform=True)
    assert {b - a for a, b in zip(uniform.starts_ns, uniform.starts_ns[1:], strict=False)} <= set(
        range(9_999_999, 10_000_002)
    )


@pytest.mark.parametrize(
    ("rate", "seconds", "lanes", "threads"), [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 4, 3)]
)
def test_a_plan_that_cannot_be_is_refused(rate: float, seconds: float, lanes: int, threads: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        open_plan(rate, seconds, lanes, threads, seed=1)


def test_operations_of_one_thread_run_in_one_lane_in_their_order() -> None:
    seen: dict[int, list[str]] = {}

    def operation(thread: int) -> Outcome:
        seen.setdefault(thread, []).append(threading.current_thread().name)
        return Outcome.DONE

    load = run_load(open_plan(2_000.0, 0.2, 3, 7, seed=1), operation)
    assert set(seen) == set(range(7))
    assert {len(set(names)) for names in seen.values()} == {1}
    assert len({names[0] for names in seen.values()}) == 3
    assert len(load.samples) + len(load.skipped) == len(open_plan(2_000.0, 0.2, 3, 7, seed=1).starts_ns)


def test_a_stalled_store_counts_against_those_that_waited_behind_it() -> None:
    gate = threading.Event()
    calls: list[int] = []

    def stalls_first(thread: int) -> Outcome:
        calls.append(thread)
        if len(calls) == 1:
            threading.Timer(0.1, gate.set).start()
            gate.wait()
        return Outcome.DONE

    plan = Plan(tuple(n * MS for n in range(50)), 0.4, 1, 1)
    trial = summarise(run_load(plan, stalls_first), 0, 1_000.0)
    assert trial.operations == 50
    assert trial.latency_ms(0.5) is not None
    assert trial.latency_ms(0.5) > 40  # type: ignore[operator]
    service = sorted(s.ended - s.started for s in run_load(plan, nothing).samples)
    assert service[25] < 10 * MS


def test_what_could_not_start_is_counted_as_skipped_and_as_slow() -> None:
    load = Load((sample(0, 0, 500),), tuple(n * MS for n in range(100, 120)), 0.5)
    trial = summarise(load, 0, 100.0)
    assert (trial.operations, trial.skipped) == (1, 20)
    assert trial.latency.count == 21
    assert trial.latency_ms(0.5) == pytest.approx(390, rel=0.01)


def test_a_lane_that_is_hopelessly_behind_gives_up_at_the_grace_and_drops_nothing() -> None:
    hold = threading.Event()

    def slow(thread: int) -> Outcome:
        hold.wait(0.02)
        return Outcome.DONE

    plan = Plan(tuple(n * MS // 10 for n in range(1_000)), 0.1, 1, 1)
    load = run_load(plan, slow)
    assert load.skipped
    assert len(load.samples) + len(load.skipped) == 1_000


def test_errors_and_conflicts_are_counted_by_what_they_are() -> None:
    def operation(thread: int) -> Outcome:
        if thread == 0:
            raise OutcomeUnknown("lost")
        if thread == 1:
            raise VersionConflict("moved")
        return Outcome.DONE

    plan = Plan(tuple(n * MS for n in range(30)), 0.1, 1, 3)
    trial = summarise(run_load(plan, operation), 0, 300.0)
    assert (trial.done, trial.conflicts, trial.errors) == (10, 10, (("OutcomeUnknown", 10),))


def test_what_is_no_error_of_a_store_voids_the_trial() -> None:
    def broken(thread: int) -> Outcome:
        raise ZeroDivisionError(thread)

    with pytest.raises(ZeroDivisionError):
        run_load(Plan((0,), 0.1, 2, 2), broken)


def test_the_warm_up_is_left_out_and_seconds_are_those_in_which_operations_ended() -> None:
    samples = (sample(0, 0, 5), sample(600, 600, 1_400), sample(1_700, 1_700, 2_900, Outcome.ERROR))
    trial = summarise(Load(samples, (), 3.0), 500 * MS, 10.0)
    assert trial.operations == 2
    rows = series([s for s in samples if s.intended >= 500 * MS], 500 * MS)
    assert [(row.done, row.errors) for row in rows] == [(1, 0), (0, 0), (0, 1)]
    assert rows[1].p50_ms is None


def test_a_closed_loop_ends_in_time_and_says_what_it_is() -> None:
    load = run_load(Plan((), 0.05, 2, 4), nothing)
    assert load.samples
    assert load.seconds < 5
    assert summarise(load, 0, None).closed
