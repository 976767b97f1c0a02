"""Goals: each is judged by the whole interval, on the right side, for its backend and its durability only."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from statebook_benchmarks.cli import group
from statebook_benchmarks.figures import CASES, Figure
from statebook_benchmarks.goals import Verdict, judge_figures, judge_peers
from statebook_benchmarks.interleave import Timing
from statebook_benchmarks.peers.sidebyside import PeerFigure
from statebook_benchmarks.stats import Interval

ROUNDS = Timing("statebook", 1, (1e-6, 1e-6, 1e-6), (1e-6, 1e-6, 1e-6))


def figure(
    backend: str,
    case: str,
    *,
    us: tuple[float, float, float],
    ratio: tuple[float, float, float] | None = None,
    durability: str = "host",
) -> Figure:
    found = None if ratio is None else Interval(*ratio)
    return Figure(
        case=next(each for each in CASES if each.name == case),
        backend=backend,
        url=f"{backend}://one",
        durability=f"{durability} (some setting)",
        floor_work=None,
        ours=ROUNDS,
        floor=None,
        microseconds=Interval(*us),
        floor_microseconds=None,
        events_per_second=1e6 / us[0],
        ratio=found,
        cpu_microseconds=Interval(*us),
        cpu_ratio=found,
    )


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        ((0.88, 0.86, 0.92), Verdict.MET),
        ((0.86, 0.84, 0.92), Verdict.UNDECIDED),
        ((0.84, 0.82, 0.85), Verdict.UNDECIDED),
        ((0.80, 0.78, 0.84), Verdict.MISSED),
    ],
)
def test_a_ratio_is_judged_by_its_whole_interval(ratio: tuple[float, float, float], verdict: Verdict) -> None:
    (judged,) = judge_figures([figure("sqlite", "append", us=(148, 147, 150), ratio=ratio)])
    assert judged.verdict is verdict
    assert judged.goal == "at least 0.85 of the raw engine"
    assert judged.ratio == Interval(*ratio)


@pytest.mark.parametrize(
    ("us", "verdict"),
    [((150, 140, 190), Verdict.MET), ((190, 150, 210), Verdict.UNDECIDED), ((250, 210, 300), Verdict.MISSED)],
)
def test_of_a_time_less_is_better(us: tuple[float, float, float], verdict: Verdict) -> None:
    (judged,) = judge_figures([figure("sqlite", "read", us=us)])
    assert (judged.verdict, judged.goal) == (verdict, "at most 0.20 ms on two cores")


def test_many_writers_are_held_against_one_of_the_same_store() -> None:
    one = figure("mysql", "append", us=(300, 290, 310), ratio=(1.1, 1.05, 1.2))
    many = figure("mysql", "writers", us=(90, 85, 95), ratio=(1.4, 1.3, 1.5))
    judged = {row.what: row for row in judge_figures([one, many])}
    assert judged["writers"].verdict is Verdict.MET
    assert judged["writers"].found == "3.33 (3.05 to 3.65)"
    assert judge_figures([many]) == ()


def test_a_backend_without_goals_and_another_durability_have_none() -> None:
    assert judge_figures([figure("mine", "append", us=(1, 1, 1), ratio=(2, 2, 2))]) == ()
    durable = figure("sqlite", "writers", us=(1_000, 900, 1_100), ratio=(1, 1, 1))
    assert [(row.what, row.verdict, row.ratio) for row in judge_figures([durable])] == [
        ("writers", Verdict.MISSED, None)
    ]
    relaxed = figure("sqlite", "writers", us=(1_000, 900, 1_100), ratio=(1, 1, 1), durability="process")
    assert judge_figures([relaxed]) == ()


def test_peers_are_judged_by_how_many_times_statebook_is_as_fast() -> None:
    beside = PeerFigure(
        medium="memory",
        case="append",
        name="LangGraph InMemorySaver",
        promises="the newest wins",
        timing=ROUNDS,
        microseconds=Interval(9, 8, 10),
        ratio=Interval(1.13, 1.10, 1.15),
        cpu_ratio=None,
    )
    (judged,) = judge_peers([beside])
    assert (judged.verdict, judged.goal) == (Verdict.MISSED, "at least 2.00 times as fast")


def test_the_commands_print_verdicts_and_the_page_shows_them(tmp_path: Path) -> None:
    figures, peers, page = tmp_path / "figures.json", tmp_path / "peers.json", tmp_path / "page.html"
    short = ["--rounds", "3", "--round-ms", "5"]
    url = f"sqlite:///{tmp_path.resolve()}/a.db"
    done = CliRunner().invoke(group, ["figures", url, *short, "--case", "append", "--json", str(figures)])
    assert done.exit_code == 0, done.output
    assert "against the project's goals" in done.output
    arguments = ["peers", *short, "--medium", "memory", "--case", "append", "--directory", str(tmp_path)]
    done = CliRunner().invoke(group, [*arguments, "--json", str(peers)])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(group, ["report", str(figures), str(peers), "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "at least 0.85 of the raw engine" in text
    assert "Beside what people use today" in text


def test_a_file_that_holds_something_else_is_refused_by_its_kind(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"format": 1, "kind": "certificate"}')
    done = CliRunner().invoke(group, ["report", str(other), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 1
    assert "'run' or 'figures' or 'peers'" in done.output
